#!/usr/bin/env bash
# The head of a Ray cluster. Ray listens on every interface of its machine, but for RAY_NODE_IP
# 127.0.0.1: keep it in a network of its own.
#   RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH  the cluster's token
#   RAY_NODE_IP, RAY_PORT (6379), RAY_NUM_CPUS, RAY_NUM_GPUS, RAY_OBJECT_STORE_BYTES, RAY_TEMP_DIR
#   RAY_INCLUDE_DASHBOARD (true), RAY_DASHBOARD_HOST (127.0.0.1)
set -euo pipefail
if [[ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ]]; then
  echo "ray-head.sh: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH" >&2
  exit 1
fi
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
# Else Ray turns it into the machine's outward address.
if [[ "${RAY_NODE_IP:-}" == 127.0.0.1 ]]; then export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0; fi

exec "$(dirname "$0")/ray.sh" ray start --head --block --port="${RAY_PORT:-6379}" \
  --include-dashboard="${RAY_INCLUDE_DASHBOARD:-true}" \
  --dashboard-host="${RAY_DASHBOARD_HOST:-127.0.0.1}" \
  ${RAY_NODE_IP:+--node-ip-address="$RAY_NODE_IP"} \
  ${RAY_NUM_CPUS:+--num-cpus="$RAY_NUM_CPUS"} \
  ${RAY_NUM_GPUS:+--num-gpus="$RAY_NUM_GPUS"} \
  ${RAY_OBJECT_STORE_BYTES:+--object-store-memory="$RAY_OBJECT_STORE_BYTES"} \
  ${RAY_TEMP_DIR:+--temp-dir="$RAY_TEMP_DIR"}
