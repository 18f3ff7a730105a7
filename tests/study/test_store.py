"""Cache keys change with what changes results and with nothing else."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.spec import (
    Columns,
    EmbeddedSource,
    FeaturesSpec,
    LayoutSpec,
    ProbeSpec,
    RankingSpec,
    TaskSpec,
)
from papa.study.average import Average
from papa.study.baseline import Baseline
from papa.study.controls import Controls
from papa.study.probe import Probe
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
CORPUS = Tokenise("t", 0.0, ENCODER, TASK, LayoutSpec(), "fingerprint")
OTHER_TEXT = replace(CORPUS, fingerprint="other text")
SAME_TEXT = replace(CORPUS, name="another name", encoder=replace(ENCODER, digest="other weights"))
CONSTANTS = Controls("c", 0.0, ENCODER, "toeplitz", 32)
PROBE = Probe(
    "p",
    0.0,
    ENCODER,
    CORPUS,
    CONSTANTS,
    TASK,
    "random",
    2,
    {},
    (0, 1),
    False,
    (0, 1),
    FeaturesSpec(),
)
RANK = Rank("r", 0.0, ENCODER, CORPUS, CONSTANTS, TASK, RankingSpec(), 0)
SETS = (("lambda", 3), ("lambda", 5))
UNTIL_STABLE = replace(RANK, ranking=RankingSpec(until_stable=True))
OF_THE_OPTIMISER = {
    "weight_decay": 0.01,
    "adam_epsilon": 1e-6,
    "max_grad_norm": 0.0,
    "encoder_dropout": True,
}
TOKENISE = CORPUS
BASELINE = Baseline("b", 0.0, ENCODER, CORPUS, TASK, (0, 1), FeaturesSpec())
LEARNED = replace(PROBE, order="lambda", draw=(), rankings={0: RANK})
F1 = TASK.model_copy(update={"metric": "f1"})
AVERAGE = Average("a", 0.0, ENCODER, CORPUS, 32)
MORE_EPOCHS = TASK.model_copy(update={"probe": TASK.probe.model_copy(update={"epochs": 9})})


def changed_probe(name: str) -> TaskSpec:
    """The task with another value of one of ``OF_THE_OPTIMISER``."""
    return TASK.model_copy(
        update={"probe": TASK.probe.model_copy(update={name: OF_THE_OPTIMISER[name]})}
    )


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
        (PROBE, replace(PROBE, name="other", flops=1.0)),
        (PROBE, replace(PROBE, corpus=SAME_TEXT)),
        (PROBE, replace(PROBE, encoder=replace(ENCODER, folder="/moved", name="another name"))),
        (BASELINE, replace(BASELINE, corpus=SAME_TEXT)),
        (TOKENISE, replace(TOKENISE, task=MORE_EPOCHS)),
        (
            TOKENISE,
            replace(
                TOKENISE, encoder=replace(ENCODER, digest="other weights", precision="bfloat16")
            ),
        ),
        (RANK, replace(RANK, ranking=RankingSpec(learning_rate=1e-3))),
        (RANK, replace(RANK, ranking=RankingSpec(epochs=2))),
        (RANK, replace(RANK, sets=SETS)),
        (RANK, replace(RANK, ranking=RankingSpec(seeds=(0, 7)))),
        (
            replace(RANK, ranking=RankingSpec(epochs=2)),
            replace(RANK, ranking=RankingSpec(epochs=2), task=MORE_EPOCHS),
        ),
        (replace(UNTIL_STABLE, sets=SETS), replace(UNTIL_STABLE, sets=SETS[::-1])),
    ],
)
def test_what_cannot_change_the_result_keeps_the_key(step: Probe, same: Probe) -> None:
    assert step.key == same.key


@pytest.mark.parametrize(
    ("step", "other"),
    [
        (PROBE, replace(PROBE, count=1)),
        (PROBE, replace(PROBE, draw=(0, 2))),
        (PROBE, replace(PROBE, order="first_to_last", draw=())),
        (LEARNED, replace(LEARNED, order="lambda_reversed")),
        (LEARNED, replace(LEARNED, rankings={0: replace(RANK, task=MORE_EPOCHS)})),
        (LEARNED, replace(LEARNED, rankings={**LEARNED.rankings, 1: replace(RANK, seed=1)})),
        (PROBE, replace(PROBE, task=MORE_EPOCHS)),
        (PROBE, replace(PROBE, seeds=(0, 2))),
        (PROBE, replace(PROBE, trained=True)),
        (PROBE, replace(PROBE, constants=replace(CONSTANTS, kind="identity"))),
        (PROBE, replace(PROBE, corpus=OTHER_TEXT)),
        (PROBE, replace(PROBE, encoder=replace(ENCODER, digest="other weights"))),
        (
            replace(PROBE, task=F1),
            replace(PROBE, task=F1.model_copy(update={"positive": "negative"})),
        ),
        (BASELINE, replace(BASELINE, task=MORE_EPOCHS)),
        (BASELINE, replace(BASELINE, seeds=(0, 2))),
        (BASELINE, replace(BASELINE, corpus=OTHER_TEXT)),
        (BASELINE, replace(BASELINE, encoder=replace(ENCODER, digest="other weights"))),
        (
            replace(BASELINE, task=F1),
            replace(BASELINE, task=F1.model_copy(update={"positive": "negative"})),
        ),
        (TOKENISE, replace(TOKENISE, fingerprint="other text")),
        (TOKENISE, replace(TOKENISE, encoder=replace(ENCODER, tokenizer_digest="other words"))),
        (TOKENISE, replace(TOKENISE, task=TASK.model_copy(update={"train_rows": 5}))),
        (TOKENISE, replace(TOKENISE, layout=LayoutSpec(segment_ids="stay"))),
        (RANK, replace(RANK, ranking=RankingSpec(epochs=5))),
        (RANK, replace(RANK, task=MORE_EPOCHS)),
        (RANK, UNTIL_STABLE),
        (RANK, replace(RANK, seed=1)),
        (UNTIL_STABLE, replace(UNTIL_STABLE, sets=SETS)),
        *(
            (step, replace(step, task=changed_probe(name)))
            for step in (PROBE, RANK)
            for name in OF_THE_OPTIMISER
        ),
        (RANK, replace(RANK, encoder=replace(ENCODER, precision="bfloat16"))),
        (AVERAGE, replace(AVERAGE, encoder=replace(ENCODER, precision="bfloat16"))),
        (AVERAGE, replace(AVERAGE, corpus=OTHER_TEXT)),
    ],
)
def test_what_changes_the_result_changes_the_key(step: Probe, other: Probe) -> None:
    assert step.key != other.key
    assert step != other


def test_steps_of_one_key_are_one() -> None:
    """Whatever they are called, and whatever was computed before."""
    assert replace(PROBE, name="other", corpus=SAME_TEXT) == PROBE
    assert len({PROBE, replace(PROBE, name="other"), pickle.loads(pickle.dumps(PROBE))}) == 1  # noqa: S301


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
    stores = [Store(f"s3://bucket/{prefix}") for prefix in ("a/b", "a-b", "a", "a/b/studies")]
    assert stores[0].folder("probe", "key") == "s3://bucket/a/b/artifacts/probe/key"
    assert Store("s3://bucket/a/b/").address == stores[0].address
    roots = [store.root for store in stores]
    assert len({*roots}) == len(roots)
    assert all(root.parent == tmp_path / "stores" for root in roots)
    copied = pickle.loads(pickle.dumps(stores[0]))  # noqa: S301
    assert copied.folder("probe", "key") == stores[0].folder("probe", "key")


@pytest.mark.parametrize("address", ["s3:/bucket/x", "s3:bucket", "gs:/bucket"])
def test_a_mistyped_uri_is_no_folder(address: str) -> None:
    with pytest.raises(
        ArtifactError, match=r"is no address of a store: give a folder, or a URI such as s3://"
    ):
        Store(address)
