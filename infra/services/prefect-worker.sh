#!/usr/bin/env bash
# A worker that runs scheduled studies as processes. A Ray driver needs a Ray node on its machine:
# this one offers no cores.
#   PREFECT_API_URL, PREFECT_API_AUTH_STRING
#   PREFECT_WORK_POOL  (papa)
#   RAY_ADDRESS   host:port of the Ray head; without it each study starts a Ray of its own
#   and what studies need: MLFLOW_TRACKING_*, AWS_*, RAY_AUTH_*, PAPA_CACHE
set -euo pipefail
: "${PREFECT_API_URL:?}" "${PREFECT_API_AUTH_STRING:?}"
export DO_NOT_TRACK=1

start=(prefect worker start --type process --pool "${PREFECT_WORK_POOL:-papa}" --with-healthcheck)

if [[ -z "${RAY_ADDRESS:-}" ]]; then exec "${start[@]}"; fi

# Whichever of the two is lost, the other ends as well, so that both are started again.
set -m  # Otherwise background processes ignore SIGINT, which ends Prefect's worker.
"${start[@]}" &
worker=$!
RAY_NUM_CPUS=0 RAY_NUM_GPUS=0 "$(dirname "$0")/ray-node.sh" &
node=$!
trap 'kill "$worker"' TERM INT
ended=0
wait -n || ended=$?
kill "$worker" 2>/dev/null || true
# A worker that gets the signal while it starts may never end.
for _ in {1..30}; do
  if kill -0 "$worker" 2>/dev/null; then sleep 1; fi
done
kill -KILL "$worker" 2>/dev/null || true
kill "$node" 2>/dev/null || true
wait
exit "$ended"
