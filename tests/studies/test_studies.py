"""The repository's studies can be loaded; those of the paper are its own, with its numbers."""

import shlex
from pathlib import Path

import pytest

from papa.reporting.reference import read_reference
from papa.spec import FilesSource, StudySpec
from papa.spec.file import load_study, registry

STUDIES = Path(__file__).resolve().parents[2] / "studies"
ALL = sorted(STUDIES.rglob("*.yaml"))


def test_studies_read_what_everybody_can_have() -> None:
    assert STUDIES / "demo.yaml" in ALL
    assert {path.parent.name for path in ALL} == {"studies", "paper", "small", "more"}
    studies = [load_study(path) for path in ALL]
    assert len({study.name for study in studies}) == len(ALL)
    for study in studies:
        assert study.keep[0] == 1, study.name
        sources = [task.source for task in study.tasks]
        sources += [constants.corpus.source for constants in study.substitutes if constants.corpus]
        assert {source.kind for source in sources} <= {"hub", "embedded"}, study.name


def test_a_local_copy_takes_the_hubs_place_as_the_page_says(corpora_folder: Path) -> None:
    lines = (STUDIES / "README.md").read_text().splitlines()
    (line,) = [line for line in lines if "tasks.0.source" in line]
    line = line.replace("/data/rte/", f"{corpora_folder}/review_pairs/")
    _, _, study, _, override = shlex.split(line)
    (task,) = load_study(STUDIES.parent / study, [override]).tasks
    assert isinstance(task.source, FilesSource)
    assert task.source.train.is_file()
    assert task.source.validation.is_file()


@pytest.mark.parametrize(
    "path", sorted((STUDIES / "small").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_small_form_is_a_part_of_its_study(path: Path) -> None:
    whole_paths = [STUDIES / folder / path.name for folder in ("paper", "more")]
    small = load_study(path)
    whole = load_study(next(filter(Path.exists, whole_paths)))

    def design(study: StudySpec) -> list[tuple]:
        # Whose text another average is of differs; that it is another's does not.
        matrices = [
            (substitute.kind, substitute.start, substitute.parameters, substitute.rows)
            for substitute in study.substitutes
        ]
        of_others = [substitute.corpus is not None for substitute in study.substitutes]
        return [*matrices, study.probe_seeds, of_others]

    assert design(small) == design(whole)
    assert set(small.orders) <= set(whole.orders)
    assert set(small.keep) <= set(whole.keep)
    assert small.reference is None


BERT = "google-bert/bert-base-uncased"
BERT_LARGE = "google-bert/bert-large-uncased"
ROBERTA = "FacebookAI/roberta-base"
ROBERTA_LARGE = "FacebookAI/roberta-large"
DEBERTA = "microsoft/deberta-base"
DEBERTA_LARGE = "microsoft/deberta-large"
ELECTRA = "google/electra-base-discriminator"
BASE = {BERT, ROBERTA, DEBERTA}
LARGE = {BERT_LARGE, ROBERTA_LARGE, DEBERTA_LARGE}
SIX = {"mnli", "sst2", "mrpc", "cola", "ner", "pos"}
AVERAGE = {"average"}
MATRICES = {"identity", "toeplitz", "zeros", "trained", "trained:average", "average"}
TEXTS = {"average", "average:mnli"}
LAMBDA = {"lambda"}
ORDERS = {"lambda", "first_to_last", "last_to_first", "random", "reversed:lambda"}
CURVE = {1, 1 / 2, 1 / 8, 1 / 16, 0}
ENDS = {1, 0}

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
Cell = tuple[str, str, str, str, float]


def axes(study: StudySpec) -> tuple[set, ...]:
    encoders = {encoder.name for encoder in study.encoders}
    tasks = {task.name for task in study.tasks}
    substitutes = {substitute.label for substitute in study.substitutes}
    return encoders, tasks, substitutes, set(study.orders), set(study.keep)


def scores_of(number: str) -> dict[Cell, float]:
    known = read_reference(STUDIES / "paper" / f"{number}.csv")
    columns = known[["encoder", "task", "constants", "order", "fraction"]]
    keys = columns.itertuples(index=False, name=None)
    scores = dict(zip(keys, known["score"], strict=True))
    assert len(scores) == len(known), f"{number}.csv has a cell twice"
    return scores


def test_there_is_one_study_a_figure_and_table() -> None:
    for ending in ("yaml", "csv"):
        assert {path.stem for path in (STUDIES / "paper").glob(f"*.{ending}")} == set(DESIGNS)
    whole = load_study(STUDIES / "whole.yaml")
    assert axes(whole) == (BASE | LARGE, SIX, AVERAGE, LAMBDA, CURVE), "figures 2a, 2b and 3"


@pytest.mark.parametrize("number", DESIGNS)
def test_a_study_runs_what_the_paper_ran(number: str) -> None:
    """Trained as the registry says, which has Table 3 (tests/text/test_files.py)."""
    study = load_study(STUDIES / "paper" / f"{number}.yaml")
    scores = scores_of(number)
    assert axes(study) == DESIGNS[number]
    assert len(study.probe_seeds) == 3
    paper_numbers = STUDIES / "paper" / f"{number}.csv"
    assert (study.name, study.reference) == (f"paper-{number}", paper_numbers)
    assert scores
    for point in scores:
        assert all(value in axis for value, axis in zip(point, axes(study), strict=True)), point
    for task in study.tasks:
        known = registry()[task.name]
        probe = task.probe.model_dump()
        assert known["probe"] == {name: probe[name] for name in known["probe"]}
        assert task.slots == known["slots"]
        # The paper's POS numbers are of another metric (docs/fidelity.md).
        assert task.metric == ("bare_entity_f1" if task.name == "pos" else known["metric"])
