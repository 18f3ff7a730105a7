#!/usr/bin/env bash
# ray.sh COMMAND…: ray start --block that ends with its raylet in any case. Ray takes one that ended
# itself, as it does where its agent was lost, for a `ray stop`, and blocks on without it.
set -euo pipefail
set -m  # Else what runs behind ignores SIGINT.
"$@" &
ray=$!
trap 'kill "$ray"' TERM INT
raylet() {
  { grep -lsx "PPid:[[:space:]]$ray" /proc/[0-9]*/status || true; } |
    xargs grep -qsx "Name:[[:space:]]raylet"
}
begun=
while kill -0 "$ray" 2>/dev/null; do
  if raylet; then begun=yes
  elif [[ "$begun" ]]; then kill "$ray"; fi
  sleep 2 &
  wait -n || true
done
wait "$ray"
