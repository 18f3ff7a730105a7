"""``papa run``: check a study, run its flow, print its table and where its files are."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas
import typer
from rich.console import Console

from papa.errors import PapaError
from papa.flows.cli import options
from papa.flows.cli.options import argument, option
from papa.flows.cli.without_file import refuse_same_name, study_of_texts, study_without_file
from papa.flows.environment import outside_working_folder, prepare_engines
from papa.flows.interrupt import Interruption
from papa.flows.progress import StudyProgress
from papa.flows.server import PrefectServer
from papa.garbage import uncollected
from papa.reporting.sentences import seed_warnings
from papa.reporting.tables import summary_table
from papa.scores.summary import read_table
from papa.storage.store import Store
from papa.tasks.manifest import RESULTS
from papa.tasks.mlflow_address import connect, tracking_address
from papa.tasks.study_files import save_study

if TYPE_CHECKING:
    from papa.flows.check import Checked
    from papa.spec import StudySpec


def run(
    study: Annotated[Path | None, argument(metavar="STUDY.yaml", help="Study file.")] = None,
    encoders: Annotated[
        list[str] | None,
        option(
            "--encoder",
            "--model",
            metavar="NAME",
            help="Encoder to measure, instead of STUDY.yaml; may be repeated.",
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        option("--task", metavar="NAME", help="Task to measure --encoder on; may be repeated."),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            min=1,
            metavar="ROWS",
            help="Largest number of rows of each split or, with --data, of texts in all (default: "
            "all); not with STUDY.yaml.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option(
            "--data",
            metavar="FILE",
            help="Evaluate the model's native head on this text file (instead of STUDY.yaml).",
        ),
    ] = None,
    overrides: options.Overrides = None,
    code: options.Code = None,
    allow_source: options.AllowSource = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
    verbose: options.Verbose = False,
) -> None:
    """Run a study; finished steps are cached.

    Name encoders and tasks instead of a study file: papa run --encoder
    google-bert/bert-base-uncased --task cola

    Or evaluate a model's native head or embeddings on a text file: papa run --model
    embedded/all-MiniLM-L6-v2 --data texts.txt
    """
    with options.one_sentence(verbose) as interruption, ExitStack() as on_refusal:
        interruption.saved = lambda: f"finished steps are kept in {store}"
        opened = Store(store)
        settings = overrides or []
        if data is not None:
            has_study_or_task = study is not None or bool(tasks)
            spec = study_of_texts(
                encoders or [], data, has_study_or_task, limit, settings, opened, on_refusal
            )
        elif study is None or encoders or tasks or limit:
            spec = study_without_file(study, encoders or [], tasks or [], limit, settings)
            refuse_same_name(spec, opened, {})
        else:
            spec = options.load_or_list_problems(study, settings, allow_source, code)
        study_path = study.absolute() if study else None
        code_paths = [path.absolute() for path in code or ()]
        with outside_working_folder():
            prepare_engines(opened.root, verbose=verbose)
            opened.make()
            # First, as it starts for as long as the imports of a check take.
            with PrefectServer(PREFECT__SERVER_EPHEMERAL="1", PREFECT_UI_ENABLED="0") as server:
                with uncollected(), Console(stderr=True).status("checking …"):
                    from papa.flows.finished import is_finished, publish_finished

                    checked, saved = _check_and_save(spec, opened, workers, ray_address, code_paths)
                    on_refusal.pop_all()  # The texts of an accepted study stay in the store.
                    own_server = server if server.use_unless_named() else None
                    finished = own_server is not None and is_finished(checked, opened)
                # After the status, which holds the error stream.
                progress = StudyProgress(len(checked.pipeline.steps), shown=True)
                interruption.saved = lambda: f"{progress.saved} in {opened.address}"
                for note in checked.notes:
                    progress.note(spec.name, note)
                is_silent = False
                if finished:
                    server.process.kill()
                    link = publish_finished(checked, opened, progress)
                else:
                    parameters = {
                        "study": str(study_path or saved),
                        "overrides": settings if study else [],
                        "store": opened.address,
                        "workers": workers,
                        "ray_address": ray_address,
                    }
                    link, is_silent = _run_flow(
                        checked, opened, progress, own_server, interruption, parameters
                    )
        _print_results(opened, spec.name, link)
        if is_silent:
            # Prefect would try for minutes to hand on what it has recorded.
            sys.stdout.flush()
            os._exit(0)


def _check_and_save(
    spec: StudySpec,
    store: Store,
    workers: int | None,
    ray_address: str | None,
    code: Sequence[Path],
) -> tuple[Checked, Path]:
    """Check a study, and save it in the store as Prefect's workers can load it."""
    # Models are imported here, while Prefect's server starts.
    from papa.flows.check import check_study

    checked = check_study(spec, store, workers=workers, ray_address=ray_address, code=code)
    inputs = checked.inputs.study
    resolved_inputs = {"code": inputs.code, "scores": inputs.scores}
    return checked, save_study(store, spec.model_copy(update=resolved_inputs))


def _run_flow(
    checked: Checked,
    store: Store,
    progress: StudyProgress,
    server: PrefectServer | None,
    interruption: Interruption,
    parameters: Mapping[str, Any],
) -> tuple[str, bool]:
    """Run a checked study as a flow, with ``parameters`` that Prefect shows, on its own server or
    on the one that settings name. Return the address of its page in MLflow, and whether Prefect's
    server no longer answers.
    """
    name = checked.inputs.study.name
    with ExitStack() as stack:
        with uncollected(), Console(stderr=True).status("starting Prefect …"):
            # Prefect reads its settings when it is imported, among them the server's address.
            from papa.flows.named_server import watch_named_server
            from papa.flows.study import PreparedRun, prepared_run, run_study, start_workers

            executor = stack.enter_context(start_workers(checked, store))
            connect(tracking_address())  # Its tables are made while the server starts.
            if server:
                server.wait(interruption.fail)
        is_silent = threading.Event()
        if server is None:
            is_silent = watch_named_server(partial(progress.note, name))
        prepared = PreparedRun(checked, store, progress, executor, interruption.on_interrupt)
        prepared_run.set(prepared)
        reason = "it says that the study is over"
        try:
            # The state alone: Prefect would load what a server says that the result is.
            state = run_study(**parameters, return_state=True)
            if state.is_failed() or state.is_crashed():
                reason = (state.message or state.name or "").partition("\n")[0]
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
        if not prepared.outcome.done():
            raise PapaError(
                f"Prefect's server did not record the study ({reason}): check that it runs "
                "and that PREFECT_API_AUTH_STRING is its login, and run again; finished "
                "steps are cached"
            )
        failure = prepared.outcome.exception()
        if failure and is_silent.is_set():
            # Prefect would try for minutes to hand on what it has recorded.
            interruption.fail(str(failure))
    return prepared.outcome.result(), is_silent.is_set()


def _print_results(store: Store, name: str, mlflow_page: str) -> None:
    """Print the table of a finished study, and where its files and its page in MLflow are."""
    folder = store.study_path(name)
    summary = options.printable_names(read_table(folder / "summary.csv"))
    Console().print(summary_table(summary))
    for warning in seed_warnings(pandas.read_parquet(folder / RESULTS)):
        typer.echo(warning)
    typer.echo(f"report   {folder}/report.html")
    typer.echo(f"figures  {folder}/scores.png, scores.svg, scores.pdf")
    ui = shlex.join(["papa", "ui", "--store", store.address])
    typer.echo(f"MLflow   {mlflow_page or f'experiment {name!r}: {ui}'}")
