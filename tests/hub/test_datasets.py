"""Datasets by hub name: every entry of the registry, what is fetched, and a hub that is gone."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from huggingface_hub import constants

from papa.errors import DataError
from papa.spec import HubSource
from papa.spec.file import registry
from papa.text.rows import read_rows
from papa.text.sources import commit_of, fingerprint, read_split
from papa.text.table import SourceTable
from tests.hub.conftest import forget
from tests.hub.datasets import NER, POS, ROWS, UPOS, write_glue, write_readme
from tests.hub.server import TOKEN, Hub
from tests.text.conftest import known_task

PARQUET = "refs/convert/parquet"
CONLL = "eriktks/conll2003"
PARTS = {"data/train-00000-of-00002": "ab", "data/train-00001-of-00002": "ba"}


def glue(
    name: str = "nyu-mll/glue",
    config: str | None = "cola",
    revision: str | None = None,
    train: str = "train",
) -> HubSource:
    return HubSource(kind="hub", name=name, config=config, revision=revision, train=train)


def train_of(source: HubSource) -> SourceTable:
    return read_split(source, source.train)


@pytest.mark.parametrize(
    "name", sorted(name for name, entry in registry().items() if entry["source"]["kind"] == "hub")
)
def test_every_entry_of_the_registry_is_read(public: Hub, name: str) -> None:
    entry = known_task(name)
    rows = read_rows(entry)
    # Of mlm half of the rows in two files: the others are blank.
    row_counts = rows.train.num_rows, rows.validation.num_rows
    assert row_counts == (ROWS, ROWS if name != "mlm" else ROWS // 2)
    expected = {"pos": tuple(POS), "ud_pos": tuple(UPOS), "ner": tuple(NER)}.get(name, entry.labels)
    assert rows.label_names == expected
    files = {path for path in public.fetched() if path.endswith((".py", ".parquet"))}
    splits = {entry.source.train, entry.source.validation}  # type: ignore[union-attr]
    assert all(any(split in path for split in splits) for path in files), "only these splits"


def test_a_branch_is_its_commit(public: Hub, written: Path, tmp_path: Path) -> None:
    commit = commit_of("nyu-mll/glue", None)
    assert public.repositories["datasets/nyu-mll/glue"].branches["main"] == commit
    forget()
    public.publish("datasets", "nyu-mll/glue", written / "glue", branch="other")
    same = (None, "main", "other", commit)
    assert len({fingerprint(glue(revision=revision)) for revision in same}) == 1
    forget()
    write_glue(tmp_path / "newer", rows=6, only=("cola",))
    public.publish("datasets", "nyu-mll/glue", tmp_path / "newer")
    assert commit_of("nyu-mll/glue", None) != commit
    assert fingerprint(glue()) != fingerprint(glue(revision=commit))
    assert train_of(glue()).rows.num_rows == 6
    assert train_of(glue(revision=commit)).rows.num_rows == ROWS
    only_configuration = train_of(glue("leondz/wnut_17", config=None, revision=PARQUET))
    assert only_configuration.rows.num_rows == ROWS, "the only configuration needs no name"


@pytest.mark.parametrize("cause", ["gone", "offline"])
@pytest.mark.parametrize("name", ["cola", "ner", "ud_pos"])
def test_what_was_read_once_is_read_without_the_hub(
    public: Hub, monkeypatch: pytest.MonkeyPatch, name: str, cause: str
) -> None:
    before = read_rows(known_task(name))
    print_before = fingerprint(known_task(name).source)
    forget()
    if cause == "gone":
        public.stop()
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    request_count = len(public.requests)
    assert read_rows(known_task(name)).train.equals(before.train)
    assert fingerprint(known_task(name).source) == print_before
    assert len(public.requests) == request_count


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (glue("nyu-mll/gleu"), "'nyu-mll/gleu'"),
        (glue("no folder!"), "'no folder!'"),
        (glue(revision="v9"), "v9"),
        (glue(config="colla"), r"'colla'.*'cola'"),
        (glue(config=None), "'cola'"),
        (glue(train="tarin"), r"'tarin' \(found: train"),
        (glue(CONLL, "conll2003"), "refs/con"),
        (glue(CONLL, "conll", revision=PARQUET), "'conll2003'"),
    ],
)
def test_what_is_missing_is_named(public: Hub, source: HubSource, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as refused:
        train_of(source)
    assert "\n" not in str(refused.value)
    assert not [request for request in public.requests if request.path.endswith(".parquet")]


def test_tokens_open_datasets(on_hub: Hub, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hub.publish("datasets", "some/gated", written / "glue", access="gated")
    with pytest.raises(DataError, match="gated"):
        train_of(glue("some/gated"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert train_of(glue("some/gated")).rows.num_rows == ROWS
    assert {request.token for request in on_hub.requests if request.to_storage} == {None}
    assert TOKEN in {request.token for request in on_hub.requests}


@pytest.mark.parametrize("path", ["/etc/passwd", "{outside}/*.parquet", "../outside/*.parquet"])
def test_a_card_cannot_point_out_of_its_repository(on_hub: Hub, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "train.parquet").touch()
    folder = tmp_path / "repository"
    write_readme(folder, {"one": {"train": path.format(outside=tmp_path / "outside")}}, {})
    (folder / "train.parquet").touch()
    on_hub.publish("datasets", "some/rows", folder)
    with pytest.raises(DataError, match="some/rows") as caught:
        train_of(glue("some/rows", "one"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("branch", "files", "expected"),
    [
        ("main", {"data/train": "ab", "data/validation": "ab"}, ""),
        (PARQUET, {"default/partial-train/0000": "ab", "default/validation/0000": "ab"}, ""),
        ("main", {**PARTS, "data/validation": "ab"}, "its files number their classes differently"),
    ],
)
def test_files_without_a_card(
    on_hub: Hub, tmp_path: Path, branch: str, files: Mapping[str, str], expected: str
) -> None:
    """Neither a description in the old form nor the beginning of a split hides others. Each file
    has a row of each class, whose numbers are their places in the letters.
    """
    if branch == "main":
        (tmp_path / "dataset_infos.json").write_text('{"default": {}}')
    for name, letters in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        label = ClassLabel(names=list(letters))
        features = Features({"sentence": Value("string"), "label": label})
        rows = Dataset.from_dict({"sentence": ["x", "y"], "label": [0, 1]}, features=features)
        rows.to_parquet(tmp_path / f"{name}.parquet")
    on_hub.publish("datasets", "lab/rows", tmp_path, branch=branch)
    source = glue("lab/rows", config=None, revision=branch)
    if expected:
        with pytest.raises(DataError, match=expected):
            read_split(source, "train")
    else:
        assert read_split(source, "validation").rows.num_rows == 2


def test_files_of_different_types_are_refused(on_hub: Hub, tmp_path: Path) -> None:
    for number, label in enumerate(("positive", 1)):
        path = tmp_path / f"data/train-0000{number}-of-00002.parquet"
        path.parent.mkdir(exist_ok=True)
        Dataset.from_dict({"sentence": ["x"], "label": [label]}).to_parquet(path)
    on_hub.publish("datasets", "lab/rows", tmp_path)
    with pytest.raises(DataError, match="lab/rows"):
        read_split(glue("lab/rows", config=None), "train")
