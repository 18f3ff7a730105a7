#!/usr/bin/env bash
# Prefect's server: API, user interface and scheduler.
#   PREFECT_SERVER_DATABASE_CONNECTION_URL  postgresql+asyncpg://user:password@host/database
#   PREFECT_SERVER_API_AUTH_STRING          user:password
#   PREFECT_SERVER_API_HOST, PREFECT_SERVER_API_PORT
set -euo pipefail
: "${PREFECT_SERVER_DATABASE_CONNECTION_URL:?}" "${PREFECT_SERVER_API_AUTH_STRING:?}"
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1

exec prefect server start
