"""Cache keys change with what changes results and with nothing else."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.spec import Columns, EmbeddedSource, LayoutSpec, ProbeSpec, RankingSpec, TaskSpec
from papa.study.constants import Controls
from papa.study.rank import Rank
from papa.study.store import Store, cache_key
from papa.study.tokenise import Tokenise

ENCODER = EncoderReference("name", None, "/folder", "weights", "words", "bert", 2, 3, 12, 64)
TASK = TaskSpec(
    name="reviews",
    kind="text",
    source=EmbeddedSource(kind="embedded"),
    columns=Columns(text="text", label="label"),
    metric="accuracy",
    slots=32,
    probe=ProbeSpec(learning_rate=1e-3, batch_size=16, epochs=2),
)
CORPUS = Tokenise("t", ENCODER, TASK, LayoutSpec(), "fingerprint")
CONSTANTS = Controls("c", ENCODER, "toeplitz", 32)
RANK = Rank("r", ENCODER, CORPUS, CONSTANTS, TASK, RankingSpec(), 0)
SETS = (("lambda", 3), ("lambda", 5))
UNTIL_STABLE = replace(RANK, ranking=RankingSpec(until_stable=True))
TWO_EPOCHS = replace(RANK, ranking=RankingSpec(epochs=2))
MORE_EPOCHS = TASK.model_copy(update={"probe": TASK.probe.model_copy(update={"epochs": 9})})


def test_a_key_is_of_stage_version_spec_and_inputs() -> None:
    keys = {
        cache_key(stage, version, {"x": x}, {"up": up})
        for stage in "ab"
        for version in (1, 2)
        for x in (1, 2)
        for up in ("d1", "d2")
    }
    assert len(keys) == 16
    assert cache_key("a", 1, {"x": 1, "y": 2}, {}) == cache_key("a", 1, {"y": 2, "x": 1}, {})


@pytest.mark.parametrize(
    ("step", "same"),
    [
        (RANK, replace(RANK, ranking=RankingSpec(learning_rate=1e-3))),
        (RANK, TWO_EPOCHS),
        (RANK, replace(RANK, sets=SETS)),
        (TWO_EPOCHS, replace(TWO_EPOCHS, task=MORE_EPOCHS)),
        (replace(UNTIL_STABLE, sets=SETS), replace(UNTIL_STABLE, sets=SETS[::-1])),
    ],
)
def test_what_says_the_same_in_another_way_keeps_the_key(step: Rank, same: Rank) -> None:
    """What each field does is ``test_keys``'s."""
    assert step.key == same.key


def test_steps_of_one_key_are_one() -> None:
    """Whatever they are called, and whatever was computed before."""
    same = replace(CORPUS, name="another name", encoder=replace(ENCODER, digest="other weights"))
    assert replace(RANK, name="other", corpus=same) == RANK != replace(RANK, seed=1)
    assert len({RANK, replace(RANK, name="other"), pickle.loads(pickle.dumps(RANK))}) == 1  # noqa: S301


def test_a_store_makes_itself_and_says_where_it_cannot(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    assert not store.root.exists()
    store.make()
    assert store.scratch.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="--store"):
        Store(tmp_path / "file" / "store").make()


def test_a_folder_is_its_own_root(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert store.address == str(store.root) == Store(f"file://{tmp_path}/store").address
    assert store.folder("probe", "key") == str(tmp_path / "store" / "artifacts" / "probe" / "key")
    assert not store.is_remote


def test_behind_a_uri_each_machine_has_a_root_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path))
    stores = [
        Store(f"s3://bucket/{prefix}") for prefix in ("a/b", "a-b", "a.b", "a", "long/" * 100)
    ]
    assert stores[0].folder("probe", "key") == "s3://bucket/a/b/artifacts/probe/key"
    assert Store("s3://bucket/a/b/").address == stores[0].address
    roots = [store.root for store in stores]
    assert len({*roots}) == len(roots)
    assert all(root.parent == tmp_path / "stores" and len(root.name) < 120 for root in roots)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert Store(stores[0].address).root not in roots, "the same bucket name at another server"
    copied = pickle.loads(pickle.dumps(stores[0]))  # noqa: S301
    assert copied.folder("probe", "key") == stores[0].folder("probe", "key")


@pytest.mark.parametrize("address", ["s3:/bucket/x", "s3:bucket", "gs:/bucket"])
def test_a_mistyped_uri_is_no_folder(address: str) -> None:
    with pytest.raises(
        ArtifactError, match=r"is no address of a store: give a folder, or a URI such as s3://"
    ):
        Store(address)
