"""Every study that comes with the repository can be loaded."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from papa.spec import FilesSource, StudySpec
from papa.spec.file import load_study

STUDIES = Path(__file__).resolve().parents[2] / "studies"
ALL = sorted(STUDIES.rglob("*.yaml"))


def name_of(path: Path) -> str:
    return path.relative_to(STUDIES).as_posix()


def test_there_are_studies() -> None:
    assert STUDIES / "demo.yaml" in ALL
    assert {path.parent.name for path in ALL} == {"studies", "paper", "small", "more"}


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_study_loads(path: Path) -> None:
    assert load_study(path).fractions[0] == 1


def test_names_are_unique() -> None:
    names = [load_study(path).name for path in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_study_names_only_what_everybody_can_have(path: Path) -> None:
    study = load_study(path)
    sources = [task.source for task in study.tasks]
    sources += [constants.corpus.source for constants in study.constants if constants.corpus]
    assert {source.kind for source in sources} <= {"hub", "embedded"}


def test_a_local_copy_takes_the_hubs_place_as_the_page_says(shared: Path) -> None:
    (line,) = [
        line
        for line in (STUDIES / "README.md").read_text().splitlines()
        if "tasks.0.source" in line
    ]
    _, _, study, _, override = shlex.split(line.replace("/data/", f"{shared}/data/"))
    (task,) = load_study(STUDIES.parent / study, [override]).tasks
    assert isinstance(task.source, FilesSource)
    assert task.source.train.is_file()
    assert task.source.validation.is_file()


@pytest.mark.parametrize(
    "path", sorted((STUDIES / "small").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_small_form_has_the_matrices_of_its_name_and_no_other_orders_or_fractions(
    path: Path,
) -> None:
    large = next(
        STUDIES / folder / path.name
        for folder in ("paper", "more")
        if (STUDIES / folder / path.name).exists()
    )
    small, whole = load_study(path), load_study(large)

    def design(study: StudySpec) -> tuple:
        # Whose text another average is of differs; that it is another's does not.
        constants = [
            (one.kind, one.start, one.parameters, one.corpus is not None, one.rows)
            for one in study.constants
        ]
        return constants, study.seeds

    assert design(small) == design(whole)
    assert set(small.orders) <= set(whole.orders)
    assert set(small.fractions) <= set(whole.fractions)
    assert small.reference is None
