"""The studies of the paper are the paper's: what they run, and the numbers that they are compared
with.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from papa.reporting.paper import read_reference
from papa.spec import StudySpec
from papa.spec.file import load_study

STUDIES = Path(__file__).resolve().parents[2] / "studies"

BERT, BERT_LARGE = "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"
DEBERTA, DEBERTA_LARGE = "microsoft/deberta-base", "microsoft/deberta-large"
ELECTRA = "google/electra-base-discriminator"
BASE, LARGE = {BERT, ROBERTA, DEBERTA}, {BERT_LARGE, ROBERTA_LARGE, DEBERTA_LARGE}
SIX = {"mnli", "sst2", "mrpc", "cola", "ner", "pos"}
AVERAGE = {"average"}
MATRICES = {"identity", "toeplitz", "zeros", "trained", "trained:average", "average"}
TEXTS = {"average", "average:mnli"}
LAMBDA = {"lambda"}
ORDERS = {"lambda", "first_to_last", "last_to_first", "random", "lambda_reversed"}
CURVE, ENDS = {1, 1 / 2, 1 / 8, 1 / 16, 0}, {1, 0}

DESIGNS = {
    "figure2a": (BASE, SIX, AVERAGE, LAMBDA, CURVE),
    "figure2b": (LARGE, SIX, AVERAGE, LAMBDA, CURVE),
    "figure3": (BASE | LARGE, SIX, AVERAGE, LAMBDA, ENDS),
    "figure4": ({ROBERTA}, {"sst2"}, AVERAGE, LAMBDA, ENDS),
    "figure5": ({ROBERTA}, {"mnli"}, AVERAGE, ORDERS, CURVE),
    "figure6a": (BASE | {ELECTRA}, {"mlm"}, AVERAGE, LAMBDA, CURVE),
    "figure6b": (BASE | {ELECTRA}, {"mnli"}, AVERAGE, LAMBDA, CURVE),
    "table1": ({ROBERTA}, SIX, MATRICES, LAMBDA, ENDS),
    "table2": ({ROBERTA}, SIX - {"mnli"}, TEXTS, LAMBDA, ENDS),
    "table4": ({ROBERTA_LARGE}, SIX, MATRICES, LAMBDA, ENDS),
    "table5": ({ROBERTA_LARGE}, SIX - {"mnli"}, TEXTS, LAMBDA, ENDS),
}
LABELS = {
    "original": "average",
    "trained from toeplitz": "trained",
    "trained from average": "trained:average",
    "average of the task's training text": "average",
    "average of MNLI's training text": "average:mnli",
}
"""The table's words for what a specification calls otherwise; of the original, matrices change
nothing.
"""
METRICS = {
    "Matthews correlation": {"matthews"},
    "accuracy": {"accuracy"},
    "F1": {"f1", "entity_f1", "bare_entity_f1"},
    "negative log-perplexity": {"negative_log_perplexity"},
}

Cell = tuple[str, str, str, str, float]


@dataclass(frozen=True)
class Design:
    """A paper study as it is in its files."""

    study: StudySpec
    scores: dict[Cell, float]

    @property
    def axes(self) -> tuple[set, ...]:
        study = self.study
        return (
            {encoder.name for encoder in study.encoders},
            {task.name for task in study.tasks},
            {constants.label for constants in study.constants},
            set(study.orders),
            set(study.fractions),
        )


def design(number: str) -> Design:
    study = load_study(STUDIES / "paper" / f"{number}.yaml")
    assert study.reference is not None
    known = read_reference(study.reference)
    keys = known[["encoder", "task", "constants", "order", "fraction"]].itertuples(
        index=False, name=None
    )
    scores = dict(zip(keys, known["score"], strict=True))
    assert len(scores) == len(known), f"{number}.csv has a cell twice"
    return Design(study, scores)


@pytest.fixture(scope="module")
def tables(shared: Path) -> list[dict[str, str]]:
    """Tables 1, 2, 4 and 5, one row a kind of matrices."""
    return rows_of(shared / "paper" / "tables.csv")


def rows_of(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        pytest.skip(f"the paper's numbers are not at {path}")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def printed(row: dict[str, str]) -> dict[Cell, float]:
    """The row of a table, as cells of a study."""
    model = {"roberta-base": ROBERTA, "roberta-large": ROBERTA_LARGE}[row["model"]]
    constants = LABELS.get(row["matrices"], row["matrices"])
    fraction = 1.0 if row["matrices"] == "original" else 0.0
    scores = {task: row["mnli_mm" if task == "mnli" else task] for task in SIX}
    return {
        (model, task, constants, "lambda", fraction): float(score)
        for task, score in scores.items()
        if score
    }


def test_there_is_one_study_a_figure_and_table() -> None:
    assert {path.stem for path in (STUDIES / "paper").glob("*.yaml")} == set(DESIGNS)
    assert {path.stem for path in (STUDIES / "paper").glob("*.csv")} == set(DESIGNS)


@pytest.mark.parametrize("number", DESIGNS)
def test_a_study_runs_what_the_paper_ran(number: str) -> None:
    found = design(number)
    assert found.axes == DESIGNS[number]
    assert len(found.study.seeds) == 3
    assert found.study.name == f"paper-{number}"
    assert found.study.reference == STUDIES / "paper" / f"{number}.csv"


@pytest.mark.parametrize("number", DESIGNS)
def test_a_reference_has_points_of_its_study_alone(number: str) -> None:
    found = design(number)
    assert found.scores
    for point in found.scores:
        for value, axis in zip(point, found.axes, strict=True):
            assert value in axis, point


@pytest.mark.parametrize("number", ["1", "2", "4", "5"])
def test_a_table_is_in_its_reference_whole(number: str, tables: list[dict[str, str]]) -> None:
    expected = {}
    for row in tables:
        if row["table"] == number:
            expected |= printed(row)
    assert expected
    scores = design(f"table{number}").scores
    # Tables 2 and 5 print no originals; those of Tables 1 and 4 are the same setting.
    rest = {point: score for point, score in scores.items() if point not in expected}
    assert {point: scores.get(point) for point in expected} == expected
    assert not rest if number in ("1", "4") else all(point[-1] == 1 for point in rest)


@pytest.mark.parametrize(
    "number",
    ["figure2a", "figure2b", "figure3", "figure4", "figure5", "figure6b", "table2", "table5"],
)
def test_what_stands_elsewhere_in_the_paper_has_the_same_number(
    number: str, tables: list[dict[str, str]]
) -> None:
    known = {}
    for row in tables:
        if row["table"] in ("1", "4") or f"table{row['table']}" == number:
            known |= printed(row)
    scores = design(number).scores
    assert scores == {point: known[point] for point in scores}


def test_electra_is_the_one_number_of_figure_6a() -> None:
    scores = design("figure6a").scores
    assert scores == {
        (ELECTRA, "mlm", "average", "lambda", 1.0): -3.51,
        (ELECTRA, "mlm", "average", "lambda", 0.0): -3.95,
    }


@pytest.mark.parametrize("number", DESIGNS)
def test_probes_are_trained_as_table_3_says(number: str, shared: Path) -> None:
    settings = {row["task"]: row for row in rows_of(shared / "paper" / "probing.csv")}
    for task in design(number).study.tasks:
        row = settings[task.name]
        assert (task.probe.learning_rate, task.probe.batch_size, task.probe.epochs, task.slots) == (
            float(row["learning_rate"]),
            int(row["batch_size"]),
            int(row["epochs"]),
            int(row["slots"]),
        )
        assert task.metric in METRICS[row["metric"]]
        if task.name == "mnli":
            assert task.source.kind == "hub"
            assert task.source.validation == "validation_mismatched"
        if task.name == "pos":
            assert task.metric == "bare_entity_f1", (
                "the paper's POS numbers are that F1 (docs/fidelity.md)"
            )


def test_the_whole_is_what_figures_2a_2b_and_3_ran() -> None:
    whole = load_study(STUDIES / "whole.yaml")
    assert Design(whole, {}).axes == (BASE | LARGE, SIX, AVERAGE, LAMBDA, CURVE)
