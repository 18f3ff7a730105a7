"""Artifacts that somebody damaged: what is read is what was stored, or one sentence says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import ElectraTokenizer

from papa.attention.constants import ConstantMatrices
from papa.corpora import tokenise_corpus
from papa.corpora.corpus import load_corpus
from papa.encoders.reference import EncoderReference
from papa.errors import PapaError
from papa.spec import LayoutSpec, TaskSpec
from papa.storage.artifacts import borrowed, inspect, published, read_metadata, reference, verify
from papa.storage.metadata import METADATA
from papa.study.probe import ProbeScores, ScoredSeed, read_scores
from papa.study.rank import LAMBDA, read_lambda
from tests.fuzz.outcomes import one_sentence, times
from tests.fuzz.test_corpora import BITS, damaged
from tests.fuzz.values import changed

ENCODER = EncoderReference("name", None, "/folder", "weights", "words", "bert", 2, 3, 12, 64)
TEXTS = ["fine film", "dull", "fine dull film", "film"]
SCORES_FOUND = ProbeScores((ScoredSeed(0, 0.6, 1.0),), None, 0.25, ((0, 1),), 12, 2.0, "cpu")
LAMBDAS_FOUND = torch.linspace(0.4, 0.6, 6).reshape(1, 2, 3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of each kind."""
    place = tmp_path_factory.mktemp("sound")
    torch.manual_seed(0)
    matrices = ConstantMatrices(
        torch.rand(2, 3, 4, 4), torch.ones(4, 4, dtype=torch.bool), "average"
    )
    matrices.save(place / "average", ENCODER, {"stage": "average", "version": 1})
    with published(place / "rank", {"stage": "rank"}) as scratch:
        save_file({"lambda_by_epoch": LAMBDAS_FOUND}, scratch / LAMBDA)
    with published(place / "probe", {"stage": "probe"}) as scratch:
        SCORES_FOUND.save(scratch)
    rows = place / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text, "label": 0}) + "\n" for text in TEXTS))
    task = TaskSpec.model_validate(
        {
            "name": "task",
            "kind": "text",
            "source": {"kind": "files", "train": rows, "validation": rows},
            "columns": {"text": "text", "label": "label"},
            "metric": "accuracy",
            "slots": 8,
            "probe": {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1},
        }
    )
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fine", "dull", "film"]
    tokenizer = ElectraTokenizer(vocab={word: number for number, word in enumerate(words)})
    tokenise_corpus(task, LayoutSpec(), tokenizer, ENCODER, place / "corpus", shard_rows=64)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "artifact"


def matrices_of(folder: Path) -> Any:
    found = ConstantMatrices.load(folder, encoder=ENCODER, slots=4)
    return found.matrices.tolist(), found.seen.tolist(), found.kind


def corpus_of(folder: Path) -> Any:
    corpus = load_corpus(folder)
    splits = [corpus.split(name) for name in ("train", "validation")]
    return [
        [one.tokens().input_ids.tolist(), one.tokens().slot_ids.tolist(), one.labels.tolist()]
        for one in splits
    ], (
        corpus.kind,
        corpus.slots,
        corpus.label_names,
    )


READERS: dict[str, Callable[[Path], Any]] = {
    "average": matrices_of,
    "rank": lambda folder: read_lambda({0: reference(folder)}).by_epoch[0].tolist(),
    "probe": read_scores,
    "corpus": corpus_of,
}
ARTIFACTS = list(READERS)


def copied(sound: Path, kind: str, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sound / kind, place)
    return place


def refused(read: Callable[[], Any]) -> bool:
    """Whether it was refused, in one sentence."""
    try:
        read()
    except PapaError as error:
        one_sentence(error)
        return True
    return False


def check(kind: str, place: Path, sound: Path) -> None:
    """What was damaged is refused by every reader, or all of it is as it was stored."""
    if not refused(lambda: READERS[kind](place)):
        assert READERS[kind](place) == READERS[kind](sound / kind)
    for look in (inspect, verify, lambda folder: borrowed(folder).__enter__()):
        if not refused(lambda look=look: look(place)):
            assert inspect(place) == inspect(sound / kind)


def test_sound_ones_are_read(sound: Path) -> None:
    assert read_scores(sound / "probe") == SCORES_FOUND
    assert READERS["rank"](sound / "rank") == LAMBDAS_FOUND.tolist()
    for kind in READERS:
        assert READERS[kind](sound / kind) == READERS[kind](sound / kind)


@times(6)
@given(
    st.sampled_from(ARTIFACTS),
    st.floats(0, 1, exclude_max=True),
    st.lists(BITS, max_size=3),
    st.sampled_from([1.0, 1.0, 1.0, 0.99, 0.5]),
    st.sampled_from(["damage", "damage", "damage", "empty", "delete", "folder", "link"]),
)
def test_damaged_files(
    sound: Path,
    place: Path,
    kind: str,
    which: float,
    bits: list[tuple[float, int]],
    cut: float,
    how: str,
) -> None:
    names = sorted(path.name for path in copied(sound, kind, place).iterdir() if path.is_file())
    path = place / names[int(which * len(names))]
    before = path.read_bytes()
    match how:
        case "damage":
            path.write_bytes(damaged(before, bits, cut))
            assume(path.read_bytes() != before)
        case "empty":
            path.write_bytes(b"")
        case "delete":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case _:
            path.unlink()
            path.symlink_to(place / "nosuch")
    check(kind, place, sound)


@times(6)
@given(st.sampled_from(ARTIFACTS), st.data())
def test_rewritten_metadata(sound: Path, place: Path, kind: str, data: st.DataObject) -> None:
    path = copied(sound, kind, place) / METADATA
    path.write_text(json.dumps(data.draw(changed(json.loads(path.read_text())))))
    check(kind, place, sound)
    if not refused(lambda: read_metadata(place)):
        assert read_metadata(place) == read_metadata(sound / kind)


@times(2)
@given(st.sampled_from(ARTIFACTS), st.sampled_from(ARTIFACTS))
def test_artifacts_in_the_place_of_others(sound: Path, place: Path, kind: str, other: str) -> None:
    """Sound and foreign: an artifact of another stage has other files, and no reader takes it for
    its own.
    """
    assume(kind != other)
    copied(sound, other, place)
    assert refused(lambda: READERS[kind](place))


@times(2)
@given(st.sampled_from(ARTIFACTS), st.sampled_from(ARTIFACTS))
def test_metadata_in_the_place_of_others(sound: Path, place: Path, kind: str, other: str) -> None:
    assume(kind != other)
    shutil.copyfile(sound / other / METADATA, copied(sound, kind, place) / METADATA)
    assert refused(lambda: READERS[kind](place))
