#!/usr/bin/env bash
# ray.sh COMMAND…: `ray start --block` that always ends with its raylet. Ray itself blocks on without
# a raylet that ended because its agent was lost, and after an exception before the raylet started.
#   RAY_START_SECONDS (180)  how long a raylet may take to come up
set -euo pipefail
set -m  # Otherwise background processes ignore SIGINT.
"$@" &
ray=$!
trap 'kill "$ray"' TERM INT
raylet() {
  { grep -lsx "PPid:[[:space:]]$ray" /proc/[0-9]*/status || true; } |
    xargs grep -qsx "Name:[[:space:]]raylet"
}
begun=
failed=0
while kill -0 "$ray" 2>/dev/null; do
  if raylet; then begun=yes
  elif ((failed)); then ((++failed < 8)) || kill -KILL "$ray"
  elif [[ "$begun" ]] || ((SECONDS > ${RAY_START_SECONDS:-180})); then
    failed=1
    if [[ -z "$begun" ]]; then
      echo "ray.sh: no raylet after $SECONDS s, ending: see above what ray start printed" >&2
    fi
    kill "$ray"
  fi
  sleep 2 &
  wait -n || true
done
wait "$ray"
exit "$((failed > 0))"
