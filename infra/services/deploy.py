#!/usr/bin/env python
"""Create the work pool, the deployments of infra/prefect.yaml and the automation of dead runs.

Again is safe: deployments of ``papa deploy`` have other names, and a schedule that somebody resumed
stays active. Its times, and parameters, that were changed in the UI are set back to those of the
file.

Environment: ``PREFECT_API_URL``, ``PREFECT_API_AUTH_STRING``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from prefect.client.orchestration import SyncPrefectClient, get_client

from papa.flows.dead_runs import create_automation

ROOT = Path(__file__).parents[2]


def active_schedules(client: SyncPrefectClient) -> dict[str, list[bool]]:
    """Return which schedules of each deployment are active, by its name, in their order."""
    return {
        deployment.name: [schedule.active for schedule in deployment.schedules]
        for deployment in client.read_deployments()
    }


def resume_schedules(client: SyncPrefectClient, were_active: dict[str, list[bool]]) -> None:
    """Make schedules active that were so before their deployment was replaced."""
    for deployment in client.read_deployments():
        before = were_active.get(deployment.name, [])
        for schedule, was_active in zip(deployment.schedules, before, strict=False):
            if was_active and not schedule.active:
                client.update_deployment_schedule(deployment.id, schedule.id, active=True)


def prefect(*arguments: str) -> None:
    subprocess.run(["prefect", "--no-prompt", *arguments], check=True, cwd=ROOT)


if __name__ == "__main__":
    with get_client(sync_client=True) as client:
        were_active = active_schedules(client)
        prefect("work-pool", "create", "papa", "--type", "process", "--overwrite")
        prefect("deploy", "--all", "--prefect-file", "infra/prefect.yaml")
        resume_schedules(client, were_active)
    create_automation()
