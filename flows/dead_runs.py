"""The automation of a Prefect server that sets the runs of dead machines to Crashed.

A study's run sends a heartbeat every ``HEARTBEAT_SECONDS``. Where these stop without an end of the
run, its process died, and the run would stay Running for ever. ``python -m papa.flows.dead_runs``
creates the automation on the server that PREFECT_API_URL names.
"""

from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

NAME = "papa-dead-runs"
HEARTBEAT_SECONDS = 30
_SILENT_SECONDS = 120
"""Four heartbeats: one may be late on a busy server."""


def automation() -> AutomationCore:
    """Return the automation."""
    final_states = ("Completed", "Failed", "Cancelled", "Crashed")
    return AutomationCore(
        name=NAME,
        description="Sets a study's run to Crashed when its process sends no heartbeat.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                *(f"prefect.flow-run.{end}" for end in final_states),
            },
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": "papa-study"},
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=_SILENT_SECONDS),
        ),
        actions=[
            ChangeFlowRunState(
                name="Crashed",
                state=StateType.CRASHED,
                message=f"No heartbeat of its process for {_SILENT_SECONDS} seconds.",
                force=False,
            )
        ],
    )


def create_automation() -> None:
    """Create the automation on the server that settings name, unless it has one of this name."""
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(NAME):
            client.create_automation(automation())


if __name__ == "__main__":
    create_automation()
