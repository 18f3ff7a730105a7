#!/usr/bin/env bash
# Prefect's server: API, user interface and scheduler.
#   PREFECT_SERVER_DATABASE_CONNECTION_URL  postgresql+asyncpg://user:password@host/database (or
#                                           PGPASSWORD)
#   PREFECT_SERVER_API_AUTH_STRING          user:password
#   PREFECT_SERVER_API_HOST, PREFECT_SERVER_API_PORT
#   DOMAIN  a proxy's, at which pages are https://prefect.DOMAIN
set -euo pipefail
: "${PREFECT_SERVER_DATABASE_CONNECTION_URL:?}" "${PREFECT_SERVER_API_AUTH_STRING:?}"
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1
if [[ -n "${DOMAIN:-}" ]]; then export PREFECT_SERVER_UI_API_URL="https://prefect.$DOMAIN/api"; fi

exec prefect server start
