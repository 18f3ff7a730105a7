#!/usr/bin/env bash
# Create the work pool, the deployments of infra/prefect.yaml and the automation. Safe to run again;
# a schedule or a parameter that was changed in the UI is set back.
#   PREFECT_API_URL, PREFECT_API_AUTH_STRING
set -euo pipefail
: "${PREFECT_API_URL:?}" "${PREFECT_API_AUTH_STRING:?}"
export DO_NOT_TRACK=1
cd "$(dirname "$0")/../.."

prefect --no-prompt work-pool create papa --type process --overwrite
prefect --no-prompt deploy --all --prefect-file infra/prefect.yaml
prefect automation inspect papa-dead-runs >/dev/null 2>&1 ||
  prefect automation create --from-file infra/prefect-automation.yaml
