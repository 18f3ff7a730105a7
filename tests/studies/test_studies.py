"""Every study that comes with the repository can be loaded."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from papa.spec import FilesSource, StudySpec
from papa.spec.file import load_study

STUDIES = Path(__file__).resolve().parents[2] / "studies"
ALL = sorted(STUDIES.rglob("*.yaml"))


def test_studies_load_name_only_what_everybody_can_have_and_have_names_of_their_own() -> None:
    assert STUDIES / "demo.yaml" in ALL
    assert {path.parent.name for path in ALL} == {"studies", "paper", "small", "more"}
    studies = [load_study(path) for path in ALL]
    assert len({study.name for study in studies}) == len(ALL)
    for study in studies:
        assert study.fractions[0] == 1, study.name
        sources = [task.source for task in study.tasks]
        sources += [constants.corpus.source for constants in study.constants if constants.corpus]
        assert {source.kind for source in sources} <= {"hub", "embedded"}, study.name


def test_a_local_copy_takes_the_hubs_place_as_the_page_says(shared: Path) -> None:
    lines = (STUDIES / "README.md").read_text().splitlines()
    (line,) = [line for line in lines if "tasks.0.source" in line]
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
    places = [STUDIES / folder / path.name for folder in ("paper", "more")]
    small, whole = load_study(path), load_study(next(filter(Path.exists, places)))

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
