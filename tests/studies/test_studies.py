"""Every study that comes with the repository can be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.spec import FilesSource
from papa.study_file import load_study

STUDIES = Path(__file__).resolve().parents[2] / "studies"
ALL = sorted(STUDIES.rglob("*.yaml"))


def test_there_are_studies() -> None:
    assert STUDIES / "demo.yaml" in ALL
    assert {path.parent.name for path in ALL} == {"studies", "paper", "small"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.relative_to(STUDIES).as_posix())
def test_a_study_loads(path: Path) -> None:
    assert load_study(path).fractions[0] == 1


def test_names_are_unique() -> None:
    names = [load_study(path).name for path in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", sorted((STUDIES / "small").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_small_study_finds_its_files(path: Path, shared: Path) -> None:
    study = load_study(path)
    sources = [task.source for task in study.tasks]
    sources += [constants.corpus.source for constants in study.constants if constants.corpus]
    local = [source for source in sources if isinstance(source, FilesSource)]
    assert local
    for source in local:
        assert source.train.is_file()
        assert source.validation.is_file()
        assert source.train.is_relative_to(shared)
