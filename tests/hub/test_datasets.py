"""Datasets by hub name: every entry of the registry, what is downloaded, and the hub that
is gone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from papa.corpora import fingerprint
from papa.corpora.hub import split_of
from papa.corpora.hub import commit_of
from papa.corpora.rows import read_rows
from papa.errors import DataError
from papa.spec import HubSource, TaskSpec
from papa.spec.file import registry, resolve_study
from tests.hub.conftest import forget
from tests.hub.datasets import (
    NER,
    POS,
    ROWS,
    UPOS,
    write_glue,
    write_readme,
)
from tests.hub.server import TOKEN, Hub

PARQUET = "refs/convert/parquet"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CoLA with files of some size."""
    folder = tmp_path_factory.mktemp("large")
    write_glue(folder, rows=20_000, only=("cola",))
    return folder


def task(name: str, **source: str) -> TaskSpec:
    entry = (
        {"name": name, "source": {"kind": "hub", **registry()[name]["source"], **source}}
        if source
        else name
    )
    document = {"name": "study", "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


def glue(**changes: str) -> HubSource:
    return HubSource(kind="hub", **{"name": "nyu-mll/glue", "config": "cola", **changes})


@pytest.mark.parametrize(
    "name", sorted(name for name, entry in registry().items() if entry["source"]["kind"] == "hub")
)
def test_every_entry_of_the_registry_is_read(public: Hub, name: str) -> None:
    entry = task(name)
    rows = read_rows(entry)
    assert (
        rows.train.num_rows == ROWS
    )  # Of mlm half of the rows in two files: the others are blank.
    assert rows.validation.num_rows == (ROWS if name != "mlm" else ROWS // 2)
    expected = {"pos": tuple(POS), "ud_pos": tuple(UPOS), "ner": tuple(NER)}.get(name, entry.labels)
    assert rows.label_names == expected
    assert not any(path.endswith(".py") for path in public.read())


def test_only_the_splits_that_are_needed_are_downloaded(public: Hub) -> None:
    read_rows(task("mnli"))
    wanted = {
        f"mnli/{split}-00000-of-00001.parquet" for split in ("train", "validation_mismatched")
    }
    assert {file for file in public.read() if file.endswith(".parquet")} == wanted


def test_a_look_reads_the_ends_of_files(on_hub: Hub, large: Path) -> None:
    on_hub.publish("datasets", "nyu-mll/glue", large)
    split = split_of(glue(), "train")
    table, rows = split.look()
    assert (rows, table.rows.num_rows) == (20_000, 0)
    assert table.rows.column_names == ["sentence", "label", "idx"]
    assert table.class_names == {"label": ("unacceptable", "acceptable")}
    asked = [request for request in on_hub.requests if request.path.endswith(".parquet")]
    assert {request.range is not None for request in asked} == {True}
    size = split.repository.files["cola/train-00000-of-00001.parquet"]
    assert all(
        int(request.range.removeprefix("bytes=").rstrip("-")) > size // 2 for request in asked
    )
    assert split.bytes_to_fetch == size


def test_a_branch_is_its_commit(public: Hub, written: Path, tmp_path: Path) -> None:
    commit = commit_of(glue())
    assert public.repository("datasets", "nyu-mll/glue").branches["main"] == commit
    forget()
    public.publish("datasets", "nyu-mll/glue", written / "glue", branch="other")
    assert (
        fingerprint(glue())
        == fingerprint(glue(revision="main"))
        == fingerprint(glue(revision="other"))
    )
    assert fingerprint(glue()) == fingerprint(glue(revision=commit))
    forget()
    write_glue(tmp_path / "newer", rows=6, only=("cola",))
    public.publish("datasets", "nyu-mll/glue", tmp_path / "newer")
    assert commit_of(glue()) != commit
    assert fingerprint(glue()) != fingerprint(glue(revision=commit))
    assert split_of(glue(), "train").read().rows.num_rows == 6
    assert split_of(glue(revision=commit), "train").read().rows.num_rows == ROWS


@pytest.mark.parametrize("how", ["gone", "offline"])
@pytest.mark.parametrize("name", ["cola", "ner", "ud_pos"])
def test_what_was_read_once_is_read_without_the_hub(
    public: Hub, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    before, print_before = read_rows(task(name)), fingerprint(task(name).source)
    forget()
    if how == "gone":
        public.stop()
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(public.requests)
    after = read_rows(task(name))
    assert after.train.equals(before.train)
    assert fingerprint(task(name).source) == print_before
    assert len(public.requests) == asked


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            {"name": "nyu-mll/gleu"},
            "dataset 'nyu-mll/gleu' is not on the hub, or it is private: correct the name",
        ),
        ({"name": "no folder!"}, "dataset 'no folder!' is no name on the hub"),
        (
            {"revision": "v9"},
            "dataset 'nyu-mll/glue' has no revision 'v9' on the hub: give a branch",
        ),
        (
            {"config": "colla"},
            r"has no configuration 'colla' \(found: cola, .*\): set source.config",
        ),
        ({"train": "tarin"}, r"has no split 'tarin' \(found: train, .*\): set source.train"),
        (
            {"name": "eriktks/conll2003", "config": "conll2003"},
            "dataset 'eriktks/conll2003/conll2003' is a script, and scripts never run: set "
            "source.revision to refs/con",
        ),
        (
            {"name": "eriktks/conll2003", "config": "conll", "revision": PARQUET},
            r"has no configuration 'conll' \(found: conll2003\)",
        ),
        (
            {"name": "leondz/wnut_17", "config": "wnut_17", "revision": PARQUET, "train": "dev"},
            r"has no split 'dev' \(found: .*train.*\)",
        ),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    public: Hub, source: dict[str, str], sentence: str
) -> None:
    wanted = glue(**source)
    with pytest.raises(DataError, match=sentence) as refused:
        split_of(wanted, wanted.train).read()
    assert "\n" not in str(refused.value)
    assert not [request for request in public.requests if request.path.endswith(".parquet")]


def test_a_missing_configuration_name_is_asked_for(public: Hub) -> None:
    with pytest.raises(
        DataError, match=r"has several configurations: set source.config to one of .*cola"
    ):
        split_of(HubSource(kind="hub", name="nyu-mll/glue"), "train").read()
    source = HubSource(kind="hub", name="leondz/wnut_17", revision=PARQUET)
    assert split_of(source, "train").read().rows.num_rows == ROWS


def test_a_token_opens_a_gated_dataset_and_stays_with_the_hub(
    on_hub: Hub, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hub.publish("datasets", "some/gated", written / "glue", access="gated")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    split = split_of(glue(name="some/gated"), "train")
    assert split.look()[1] == ROWS
    assert split.read().rows.num_rows == ROWS
    assert {request.token for request in on_hub.requests if request.to_storage} == {None}
    assert TOKEN in {request.token for request in on_hub.requests}


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside/*.parquet"])
def test_a_card_cannot_point_out_of_its_repository(on_hub: Hub, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "train.parquet").touch()
    folder = tmp_path / "repository"
    write_readme(folder, {"one": {"train": path}}, [])
    (folder / "train.parquet").touch()
    on_hub.publish("datasets", "some/rows", folder)
    sentences = "no readable list of splits|holds no data file that is read|is no file of it"
    with pytest.raises(DataError, match=sentences) as told:
        split_of(HubSource(kind="hub", name="some/rows", config="one"), "train").read()
    assert "\n" not in str(told.value)
