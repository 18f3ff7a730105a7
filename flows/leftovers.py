"""What a killed study leaves behind, cleaned up by the next: its Prefect server, its run in state Running."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from flows.environment import DRIVER
from flows.processes import Process, end, start_of
from tasks.store import Store

TAG = "driver="
_SERVER = b"prefect.server.api.server:create_app"


def end_stale_servers(store: Store) -> int:
    """End Prefect servers of this store whose study is gone; returns how many.

    A server is ended only if this user runs it, its command is Prefect's server, its environment names this
    store's Prefect folder and a driver, and that driver does not run any more.
    """
    ended = 0
    for pid, started in _stale_servers(store):
        end(pid, started)
        ended += 1
    return ended


def _stale_servers(store: Store) -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        started = start_of(pid)
        try:
            if started is None or folder.stat().st_uid != os.getuid():
                continue
            if _SERVER not in (folder / "cmdline").read_bytes().split(b"\0"):
                continue
            lines = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        environment = dict(line.decode(errors="replace").partition("=")[::2] for line in lines)
        driver = Process.parse(environment.get(DRIVER, ""))
        if environment.get("PREFECT_HOME") == str(store.prefect) and driver is not None and driver.gone:
            yield pid, started


def name_driver(run: UUID, tags: Iterable[str]) -> None:
    """Tag a flow run with the process that runs it.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a request.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.update_flow_run(run, tags=[*tags, f"{TAG}{Process.this()}"])


def mark_crashed_runs() -> int:
    """Set flow runs of this machine's dead drivers, and their task runs, to Crashed; returns how many."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterId,
        FlowRunFilterState,
        FlowRunFilterStateType,
        TaskRunFilter,
        TaskRunFilterState,
        TaskRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    unfinished = [StateType.RUNNING, StateType.PENDING]
    marked = 0
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=unfinished)))
        )
        for run in runs:
            driver = next((Process.parse(tag.removeprefix(TAG)) for tag in run.tags if tag.startswith(TAG)), None)
            if driver is None or not driver.gone:
                continue
            state = Crashed(message=f"Its process {driver} was killed.")
            task_runs = client.read_task_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])),
                task_run_filter=TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=unfinished))),
            )
            for task_run in task_runs:
                client.set_task_run_state(task_run.id, state, force=True)
            client.set_flow_run_state(run.id, state, force=True)
            marked += 1
    return marked
