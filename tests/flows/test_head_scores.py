"""``papa heads`` writes scores of heads and takes those of others: through files, from a finished
study.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import papa
from flows.cli import app
from papa.progress import Bars
from papa.spec.file import load_study
from papa.study.here import run_here
from papa.study.inputs import check_inputs
from papa.study.rank import Rank, read_lambda
from papa.study.steps import study_steps
from papa.study.store import Store
from tests.flows.conftest import SMALL


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Store]:
    """A study's file, and a store with what it makes but for the report."""
    folder = tmp_path_factory.mktemp("finished")
    file, store = folder / "study.yaml", Store(folder / "store")
    file.write_text(yaml.safe_dump({**SMALL, "fractions": [1, 0.5]}))
    store.make()
    study = load_study(file)
    run_here(study_steps(check_inputs(study)).steps[:-1], store, study.execution, Bars(shown=False))
    return file, store


def heads(finished: tuple[Path, Store], *options: str) -> tuple[int, str]:
    file, store = finished
    found = CliRunner().invoke(app, ["heads", str(file), "--store", store.address, *options])
    return found.exit_code, found.output


def test_lambda_is_written_and_read_to_the_last_digit(
    finished: tuple[Path, Store], tmp_path: Path
) -> None:
    code, written = heads(finished, "--tsv")
    assert code == 0, written
    (tmp_path / "lambda.tsv").write_text(written)
    steps = study_steps(check_inputs(load_study(finished[0]))).steps
    (rank,) = (step for step in steps if isinstance(step, Rank))
    scores = papa.load_scores(tmp_path / "lambda.tsv", layers=6, heads=12)
    assert np.array_equal(scores, read_lambda({0: rank.reference(finished[1])}).mean)

    code, again = heads(finished, "--tsv", "--scores", str(tmp_path / "lambda.tsv"))
    assert (code, again) == (0, written)
    code, told = heads(finished, "--tsv", "--json")
    assert code == 1
    assert "--json and --tsv are two forms of one answer" in told


def test_others_scores_say_which_heads_would_become_constant(
    finished: tuple[Path, Store], tmp_path: Path
) -> None:
    file = tmp_path / "duo.tsv"
    np.savetxt(file, np.arange(72.0).reshape(6, 12)[::-1], delimiter="\t")
    code, told = heads(finished, "--scores", str(file))
    assert code == 0, told
    assert f"scores of {file}" in " ".join(told.split())
    assert "36 of 72: not measured" in told
    listed = [line.strip() for line in told.splitlines() if line.startswith("    layer")]
    assert listed == [f"layer {layer}: {', '.join(map(str, range(12)))}" for layer in (3, 4, 5)]

    file.write_text("1\t2\n")
    code, told = heads(finished, "--scores", str(file))
    assert code == 1
    assert "they are of 1 layers of 2 heads" in told


def test_lambda_that_is_not_there(tmp_path: Path, finished: tuple[Path, Store]) -> None:
    Store(tmp_path / "empty").make()
    code, told = heads((finished[0], Store(tmp_path / "empty")), "--tsv")
    assert code == 1
    assert "has finished no scores of heads: --tsv prints those of one method" in told
