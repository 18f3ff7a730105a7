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

if [[ -n "${RAY_ADDRESS:-}" ]]; then
  RAY_NUM_CPUS=0 RAY_NUM_GPUS=0 "$(dirname "$0")/ray-node.sh" &
fi
exec prefect worker start --type process --pool "${PREFECT_WORK_POOL:-papa}" --with-healthcheck
