"""One small study by real engines, end to end and over again; and steps that fail."""

import re
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas
import pytest
import yaml
from safetensors.torch import load_file, save_file

from papa.storage.artifacts import metadata_below, verified
from papa.storage.locks import claimed
from papa.storage.store import Store
from papa.tasks.step import group_by_seed
from tests.flows import conftest as cli
from tests.flows.history import flow_runs, mlflow_states, own_flow_runs, own_server
from tests.tasks.tracked import assert_whole, steps_of

pytestmark = pytest.mark.server

WITHOUT_INPUT = f"import os; os.close(0)\n{cli.COMMAND}"
COMPUTED = ("tokenise", "average", "train_lambda", "probe", "baseline")


class Ran(NamedTuple):
    """A study that two runs at once finished: its file, its store, and what each printed."""

    study: str
    store: Path
    first: list[cli.Finished]

    @property
    def results(self) -> pandas.DataFrame:
        return pandas.read_parquet(self.store / "studies" / "small" / "results.parquet")


@pytest.fixture(scope="module")
def ran(shallow: str, tmp_path_factory: pytest.TempPathFactory, prefect: dict[str, str]) -> Ran:
    """Run behind a proxy that is none, which local connections must not use, without a stdin."""
    folder = tmp_path_factory.mktemp("run")
    study = cli.write_study(folder, cli.SMALL | {"encoders": [shallow]})
    store = Store(folder / "store")
    store.make()
    (store.root / "studies").mkdir()
    store.study_path("small.failed").write_text("as it was before")
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    environment = prefect | dict.fromkeys(names, "http://127.0.0.1:9")
    step, *_ = steps_of(study)[1].steps
    with claimed(store, f"{step.stage.name}-{step.key}"):
        arguments = ("run", study, "--store", store.address)
        start = partial(cli.start, extra_environment=environment, program=WITHOUT_INPUT)
        both = [start(*arguments) for _ in range(2)]
        # Both meet at a step that another holds.
        met = [cli.until(run.stderr, f"{step.name}: waits for another run") for run in both]
    first = [cli.finish(run, before) for run, before in zip(both, met, strict=True)]
    assert not any(finished.code for finished in first), first
    return Ran(study, store.root, first)


def test_results_hold_every_cell(ran: Ran) -> None:
    folder = ran.store / "studies" / "small"
    results = ran.results
    names = ("results.parquet", "summary.csv", "scores.png", "scores.svg", "report.html")
    assert all((folder / name).stat().st_size > 0 for name in names)
    assert not folder.with_name("small.failed").exists()
    assert len(results) == 2 * 3 * 2
    heads = results.groupby("fraction")["constant_heads"].unique().map(list).to_dict()
    assert heads == {0.0: [24], 0.5: [12], 1.0: [0]}
    assert results["score"].between(0, 1).all()
    shared = results[results["fraction"] != 0.5].groupby(["fraction", "seed"])["score"].nunique()
    assert (shared == 1).all(), "orders share the cells at 1 and 0"
    assert len(cli.artifacts(ran.store, "probe")) == 2 * 4, "1, 0, and 1/2 in two orders, by seed"
    (task,) = yaml.safe_load((folder / "study.yaml").read_text())["tasks"]
    assert (task["metric"], task["train_rows"]) == ("accuracy", 64)
    for run in ran.first:
        assert str(folder / "report.html") in run.out
        # A run that a busy server does not answer in time ends without saying what it imported.
        if "does not answer" not in run.err:
            assert not run.imported & {"vl_convert", "sklearn"}, "the report is written on a worker"
        shares = [int(share) for share in re.findall(r"\| study (\d+)%", run.err)]
        assert shares == sorted(shares)
        assert 0 <= shares[0] < shares[-1] == 100


def test_of_two_runs_at_once_each_takes_what_the_other_finished(ran: Ran) -> None:
    counts = Counter[str]()
    for run in ran.first:
        counts.update(re.findall(r"^(.+?): started", run.err, re.MULTILINE))
    assert counts == Counter(group.name for group in group_by_seed(steps_of(ran.study)[1].steps))
    store = Store(ran.store)
    for stage in ("average", "train_lambda", "probe", "aggregate"):
        for key in metadata_below(f"{store.artifacts}/{stage}"):
            verified(store.folder(stage, key))


def test_a_repeated_run_computes_nothing(ran: Ran) -> None:
    before = cli.artifacts(ran.store, *COMPUTED, "aggregate")
    store = ("--store", str(ran.store))
    for command, imported in (("plan", set()), ("check", set()), ("run", {"mlflow"})):
        finished = cli.papa(command, ran.study, *store)
        assert finished.code == 0, finished.err
        assert finished.imported == imported
    with own_server() as server:
        shown = len(flow_runs(ran.store, server))
        assert cli.papa("run", ran.study, *store, extra_environment=server).code == 0
        runs = flow_runs(ran.store, server)
    assert len(runs) == shown + 1, "only the server that settings name is told"
    assert cli.artifacts(ran.store, *COMPUTED, "aggregate") == before
    run = runs[-1]
    assert (run.name, run.state) == ("small", "Completed")
    assert {*zip(run.steps.values(), run.attempts.values(), strict=True)} == {("Cached", 1)}
    assert_whole(Store(ran.store))


IMPATIENT = f"""
import papa.flows.environment
prepare = papa.flows.environment.prepare_engines

def wait_less(*arguments, **settings):
    prepare(*arguments, **settings)
    import papa.flows.stages
    papa.flows.stages._RETRY_SECONDS[:] = [5, 0.5]

papa.flows.environment.prepare_engines = wait_less
{cli.COMMAND}"""
"""The command, which tries a step again after 5 seconds and then half a second, not 30."""
CELL = "probe · all-MiniLM-L6-v2 · reviews · identity · every head constant"
BASELINE = "baseline · all-MiniLM-L6-v2 · reviews"


def reasons(finished: cli.Finished) -> dict[str, str]:
    return dict(re.findall(r"^(.+): failed: (.+) \| study", finished.err, re.MULTILINE))


def test_failed_steps_are_named(tmp_path: Path, shallow: str) -> None:
    """Probes with too high a rate, and an encoder with infinity in queries of its last layer; on
    a server of the study's own.
    """
    rows = [{"text": f"a text number {number}", "label": number % 2} for number in range(40)]
    probe = {"learning_rate": 1e30, "batch_size": 16, "epochs": 1}
    source = cli.rows_in(tmp_path, "numbers", rows)
    task = cli.task_on("numbers", source, probe=probe)
    poisoned = Path(shutil.copytree(shallow, tmp_path / "poisoned"))
    store = tmp_path / "store"
    weights = load_file(poisoned / "model.safetensors")
    weights["encoder.layer.1.attention.self.query.weight"][0, 0] = float("inf")
    save_file(weights, poisoned / "model.safetensors", metadata={"format": "pt"})
    both = {"encoders": [shallow, str(poisoned)], "tasks": [cli.FEW, task]}
    study = cli.known(cli.write_study(tmp_path, cli.IDENTITY | both))
    finished = cli.papa("run", study, "--store", str(store))
    (run,) = own_flow_runs(store)
    assert finished.err.count("error: ") == 1, "the server's end is no failure of its own"
    why = reasons(finished)
    # Whether the other cell overflows is the processor's.
    left = why["probe · all-MiniLM-L6-v2 · numbers · no constant head"]
    assert re.search("the loss of seed 0 is (nan|inf)", left)
    error = cli.words(finished)[-1].removeprefix("error: ")
    name = error.partition(" failed: ")[0]
    assert why[name] in error
    assert f"{len(why) - 1} more" in error
    assert (finished.code, run.state) == (1, "Failed")
    assert str(run.message).endswith(error)
    assert name in cli.invoke("list", "--store", str(store)).out

    reached = "probe · poisoned · reviews · no constant head"
    assert re.search(r"layer 1 of row \d+, batch 1 of the train split", why[reached])
    assert "encoder.layer.1.attention.self.query.weight" in why[reached]
    assert run.attempts[reached] == 1
    poisoned_steps = (step.replace("all-MiniLM-L6-v2", "poisoned") for step in (CELL, BASELINE))
    for step_name in (CELL, *poisoned_steps):
        assert run.steps[step_name] == "Completed"
    assert mlflow_states(store) == {"study": {"FAILED"}, "cell": {"FINISHED"}}


def test_a_step_is_tried_again(shallow: str, tmp_path: Path, prefect: dict[str, str]) -> None:
    """Probes, whose place in the store comes back, and a baseline, whose place does not."""
    store = tmp_path / "store"
    blocked = store / "artifacts" / "probe"
    blocked.parent.mkdir(parents=True)
    Store(store).make()
    for blocker in (blocked, blocked.with_name("baseline")):
        blocker.touch()
    study = cli.known(cli.write_study(tmp_path, cli.IDENTITY | {"encoders": [shallow]}))
    with cli.start(
        "run", study, "--store", str(store), extra_environment=prefect, program=IMPATIENT
    ) as process:
        waiting = cli.until(process.stderr, f"{CELL}: will be tried again")
        blocked.unlink()
        finished = cli.finish(process, waiting)
    assert finished.code == 1
    (run,) = flow_runs(store, prefect)
    assert (run.steps[CELL], run.attempts[CELL]) == ("Completed", 2)
    assert (run.state, run.attempts[BASELINE]) == ("Failed", 3)
    for step, times in ((CELL, 1), (BASELINE, 2)):
        assert finished.err.count(f"{step}: will be tried again") == times
    (name,) = reasons(finished)
    error = cli.words(finished)[-1].removeprefix("error: ")
    assert name == BASELINE, "it alone failed"
    assert reasons(finished)[name] in error
    assert str(run.message).endswith(error)
    assert "Traceback" not in finished.err
