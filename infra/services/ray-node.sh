#!/usr/bin/env bash
# One more node of a Ray cluster.
#   RAY_ADDRESS                       host:port of the head
#   RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH  the cluster's token
#   RAY_NODE_IP, RAY_NUM_CPUS, RAY_NUM_GPUS, RAY_OBJECT_STORE_BYTES, RAY_TEMP_DIR
set -euo pipefail
: "${RAY_ADDRESS:?}"
if [[ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ]]; then
  echo "ray-node.sh: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH" >&2
  exit 1
fi
if [[ "${RAY_NODE_IP:-}" == 127.0.0.1 ]]; then
  echo "ray-node.sh: other nodes do not reach this one at RAY_NODE_IP=127.0.0.1" >&2
  exit 1
fi
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

exec "$(dirname "$0")/ray.sh" ray start --block --address="$RAY_ADDRESS" \
  ${RAY_NODE_IP:+--node-ip-address="$RAY_NODE_IP"} \
  ${RAY_NUM_CPUS:+--num-cpus="$RAY_NUM_CPUS"} \
  ${RAY_NUM_GPUS:+--num-gpus="$RAY_NUM_GPUS"} \
  ${RAY_OBJECT_STORE_BYTES:+--object-store-memory="$RAY_OBJECT_STORE_BYTES"} \
  ${RAY_TEMP_DIR:+--temp-dir="$RAY_TEMP_DIR"}
