"""Run a checked study: Prefect's server, the flow, and at the end its table and its files."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.environment import prepare_environment
from flows.interrupt import Interruption
from flows.progress import StudyProgress
from flows.server import use_server
from flows.terminal import say
from papa.errors import TransientError
from papa.imports import uncollected
from papa.spec import StudySpec
from papa.study.store import Store, no_longer_announced
from tasks.mlflow import tracking_address, without_password

if TYPE_CHECKING:
    from prefect import Flow

    from flows.startup import ReadyStudy
    from tasks.track import Track

_FINISHED_EARLIER = (
    "an earlier version of PAPA finished it here; that is kept, and made anew under this "
    "version's keys"
)


def run_study(
    spec: StudySpec,
    store: Store,
    interruption: Interruption,
    *,
    study: Path | None = None,
    overrides: Sequence[str] = (),
    code: Sequence[Path] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    verbose: bool = False,
) -> None:
    """Check a study and run it from the command line; print its table and where things lie.

    The store is made. The specification is saved beside the results; where the study has no file,
    ``study``, of its own, that is the file in Prefect's record.
    """
    prepare_environment(store, verbose=verbose)
    store.make()
    # It comes up while the study is looked at, and what looks is imported.
    server = use_server(store)
    from flows.check import check_study
    from flows.startup import ready_study
    from flows.studies import save_study
    from papa.study.aggregate import earlier_results

    checked = check_study(spec, store, workers=workers, ray_address=ray_address, code=code)
    found = checked.inputs.study
    saved = save_study(store, spec.model_copy(update={"code": found.code, "scores": found.scores}))
    parameters = {
        "study": str((study or saved).absolute()),
        "overrides": list(overrides) if study else [],
        "store": store.address,
        "workers": workers,
        "ray_address": ray_address,
    }
    errors = Console(stderr=True)
    with ExitStack() as stack:
        with uncollected(), errors.status("starting Prefect …"):
            if not server:
                from flows.flow_runs import check_server

                check_server()
            progress = StudyProgress(errors)
            for warning in checked.warnings:
                progress.told(spec.name, warning)
            if checked.to_run and earlier_results(store, spec.name):
                progress.told(spec.name, _FINISHED_EARLIER)
            interruption.hush = progress.hush
            interruption.kept = lambda: f"{progress.kept} in {store.address}"
            ready = stack.enter_context(ready_study(checked, store, progress))
            interruption.endings += [
                ready.pool.abandon,
                partial(no_longer_announced, store),
            ]
            interruption.last.append(ready.pool.remove_session)
            if server:
                interruption.endings.insert(0, server.let_go)
                server.lost = lambda what: progress.told(
                    "Prefect's server",
                    f"it ended and {what}; its record may lack what it was told just then",
                )
            from flows.flow_runs import mark_interrupted_run
            from flows.study import study_flow

            flow = study_flow(ready)
            _import_for_later(flow, parameters)
            interruption.endings += [mark_interrupted_run, ready.live.interrupted]
            if server:
                server.wait()
        _record_and_run(flow, parameters, ready, watched=server is None)
    _show_results(ready.live.track, store, Console())
    # As the process ends, there is nothing to look through for garbage.
    gc.freeze()


def _import_for_later(flow: Flow[..., str], parameters: Mapping[str, Any]) -> None:
    """Import what the flow needs as it begins and ends, while the server starts."""
    import pandas  # noqa: F401
    import prefect.flow_engine
    import prefect.task_engine  # noqa: F401

    flow.serialize_parameters(dict(parameters))


def _record_and_run(
    flow: Flow[..., str], parameters: Mapping[str, Any], ready: ReadyStudy, *, watched: bool
) -> None:
    """Run a flow; where Prefect's server is lost meanwhile, what the steps came to counts.

    Heartbeats are sent where something may listen for them: the thread that sends them ends a
    second late.
    """
    import httpx
    from prefect.exceptions import PrefectException
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY
    from prefect.settings.context import temporary_settings

    unwatched = {} if watched else {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    try:
        with temporary_settings(unwatched):
            flow(**parameters)
    except Exception as error:
        clients = (httpx.HTTPError, PrefectException)
        if not isinstance(error, clients) and not isinstance(error.__cause__, clients):
            raise
        answer = getattr(error, "response", None)
        what = str(error).partition("\n")[0] or type(error).__name__
        if answer is not None:
            what = f"status {answer.status_code}"
        why = f"Prefect's server does not record the study ({what})"
        if not ready.outcome.done():
            raise TransientError(f"{why}: run again, finished steps are kept") from None
        ready.progress.told(
            ready.spec.name,
            f"{why}: its record is not whole, what is finished is kept in the store",
        )
        ready.outcome.result()


def _show_results(track: Track, store: Store, console: Console) -> None:
    from papa.reporting.tables import summary_table
    from papa.scores.summary import read_table
    from tasks.shown import page_link, run_links
    from tasks.track import logged_runs

    study, document = track.study.name, logged_runs(track, store)
    folder, tracking = store.study(study), without_password(tracking_address(store))
    console.print(summary_table(read_table(folder / "summary.csv")))
    say(console, f"report   {folder}/report.html")
    say(console, f"figures  {folder}/scores.png, scores.svg, scores.pdf")
    if charts := run_links(document).get(study):
        say(console, f"MLflow   charts  {charts}")
        say(console, f"MLflow   report  {page_link(document)}")
    else:
        ui = shlex.join(["papa", "ui", "--store", store.address])
        own = shlex.join(["mlflow", "ui", "--backend-store-uri", tracking])
        say(console, f"MLflow   experiment '{study}': {ui}   (or: {own})")
