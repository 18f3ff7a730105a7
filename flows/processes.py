"""Processes by machine, id and start (an id alone is used again), and the flow runs that killed ones left."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID


@dataclass(frozen=True)
class Process:
    """A process on a machine.

    Attributes:
        host: the machine's name.
        pid: its id.
        started: its start, in clock ticks after boot; 0 where the system does not say.
    """

    host: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """The process that ``str`` wrote; None where the text is something else."""
        host, _, rest = text.rpartition(":")[0].rpartition(":")
        started = text.rpartition(":")[2]
        return cls(host, int(rest), int(started)) if host and rest.isdecimal() and started.isdecimal() else None

    @classmethod
    def this(cls) -> Process:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), start_of(os.getpid()) or 0)

    @property
    def here(self) -> bool:
        """Whether it belongs to this machine."""
        return self.host == socket.gethostname()

    @property
    def gone(self) -> bool:
        """Whether it surely does not run any more; a process of another machine is never gone."""
        if not self.here:
            return False
        if Path("/proc/self/stat").exists():
            return start_of(self.pid) != self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def start_of(pid: int) -> int | None:
    """When a process started, in clock ticks after boot; None where there is none (or no /proc)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold spaces; the state follows it, the start time is 19 fields on.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


FLOW = "papa-study"
TAG = "driver="


def describe_run(run: UUID, name: str, tags: Iterable[str]) -> None:
    """Name a flow run, and tag it with the process that runs it.

    Done from inside the flow: tags given around it would go to its task runs, too, and cost each a request.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.update_flow_run(run, name=name, tags=[*tags, f"{TAG}{Process.this()}"])


def mark_interrupted_run() -> None:
    """Set this process's flow run to Crashed; its task runs follow when the next study starts."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
    from prefect.states import Crashed

    own = FlowRunFilter(tags=FlowRunFilterTags(all_=[f"{TAG}{Process.this()}"]))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=own):
            client.set_flow_run_state(run.id, Crashed(message="It was interrupted."), force=True)


def mark_crashed_runs() -> int:
    """Set runs of studies whose process died on this machine to Crashed, with their task runs; returns how many.

    Task runs of a study that something else set to Crashed, such as an automation that missed its heartbeat, are
    set to Crashed as well.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        TaskRunFilter,
        TaskRunFilterState,
        TaskRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    def flow_runs_in(*states: StateType) -> FlowRunFilter:
        return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))))

    studies = FlowFilter(name=FlowFilterName(any_=[FLOW]))
    unfinished = [StateType.RUNNING, StateType.PENDING]
    marked = 0
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_filter=studies, flow_run_filter=flow_runs_in(*unfinished)):
            driver = next((Process.parse(tag.removeprefix(TAG)) for tag in run.tags if tag.startswith(TAG)), None)
            if driver is not None and driver.gone:
                client.set_flow_run_state(run.id, Crashed(message=f"Its process {driver} was killed."), force=True)
                marked += 1
        left = client.read_task_runs(
            flow_filter=studies,
            flow_run_filter=flow_runs_in(StateType.CRASHED),
            task_run_filter=TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=unfinished))),
        )
        for task_run in left:
            client.set_task_run_state(task_run.id, Crashed(message="Its study's process was killed."), force=True)
    return marked
