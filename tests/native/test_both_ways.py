"""A model has one table, whether a study opens it by name or it is measured in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

import papa
from papa.scores.summary import summarise
from tests.finished import Scored, described, score_study
from tests.heads.copying import HALF, TOKENS, repeated, trained_copier
from tests.models.inputs import with_tokenizer
from tests.probes.sentences import SMALL, pairs

pytestmark = pytest.mark.unchecked
METRIC = "negative_log_perplexity"
TEXTS = {"train": 48, "validation": 24}
SUBSTITUTES = ["average", "zeros"]
ORDERS = ["random", "effect", "lambda", "output_norm", "first_token_attention"]
KEEP = [1, 0.5, 0]
MEASURES = ["mean", "low", "high", "difference"]
TASK = {"kind": "causal", "head": "native", "columns": {"text": "text"}, "slots": 2 * HALF}


def texts_of(split: str) -> list[str]:
    """Texts of different lengths."""
    rows = repeated(20_000 if split == "train" else 10_001).tolist()
    return [
        " ".join(f"w{number}" for number in row[: len(row) - index % 9])
        for index, row in enumerate(rows[: TEXTS[split]])
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copier")
    trained_copier().save_pretrained(folder / "model")
    words = {f"w{number}": number for number in range(TOKENS)}
    tokenizer = Tokenizer(WordLevel(words))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "model")
    for split in TEXTS:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts_of(split))
        (folder / f"{split}.jsonl").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    document = described(
        folder / "model",
        {**TASK, "metric": METRIC},
        substitutes=SUBSTITUTES,
        orders=ORDERS,
        keep=KEEP,
        probe_seeds=[0, 1],
        ranking_seeds=[0, 1, 2],
    )
    return score_study(document, folder, tmp_path_factory.mktemp("study") / "store")


@pytest.fixture(scope="module")
def measured(folder: Path) -> papa.Measurement:
    return papa.measure(
        trained_copier().eval(),
        {split: texts_of(split) for split in TEXTS},
        task=papa.Task(name=METRIC),
        tokenizer=AutoTokenizer.from_pretrained(folder / "model"),
        probe_seeds=[0, 1],
        ranking_seeds=[0, 1, 2],
        substitutes=SUBSTITUTES,
        orders=ORDERS,
        keep=KEEP,
        progress=False,
    )


def by_cell(summary: pandas.DataFrame) -> pandas.DataFrame:
    cells = summary.set_index(["constants", "order", "fraction"]).sort_index()
    return cells[["constant_heads", *MEASURES]].astype(float)


def test_the_table_of_a_decoder_is_the_same(study: Scored, measured: papa.Measurement) -> None:
    expected = by_cell(summarise(study.table))
    pandas.testing.assert_frame_equal(by_cell(measured.summary), expected, rtol=0, atol=1e-5)
    assert expected["mean"].nunique() > 8, "negative control: cells differ"


@pytest.mark.parametrize("method", ORDERS[1:])
def test_intervals_of_head_scores_are_the_same(
    study: Scored, measured: papa.Measurement, method: str
) -> None:
    (pair,) = study.steps.pairs
    expected = pair.head_scores(study.artifacts)[method].frame(method)
    frame = measured.head_scores
    scores = frame[frame["method"] == method][["score", "low", "high"]]
    np.testing.assert_allclose(scores, expected[["score", "low", "high"]], atol=2e-5)
    assert np.ptp(expected["score"]) > 1e-3, "negative control: heads differ"
    assert (expected["low"] < expected["high"]).all()


SLOTS = 32


@dataclass(frozen=True)
class Classifier:
    """A random classifier on texts of different lengths, and its study; its positions count tokens,
    wherever a layout puts them.

    Attributes:
        model: In memory.
        folder: Of its files.
        texts: By split.
        labels: By split.
        study: Scored by name.
    """

    model: RobertaForSequenceClassification
    folder: Path
    texts: dict[str, list[str]]
    labels: dict[str, list[int]]
    study: Scored

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return AutoTokenizer.from_pretrained(self.folder)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    torch.manual_seed(0)
    settings = SMALL | {"num_labels": 3, "pad_token_id": 0, "type_vocab_size": 2}
    config = RobertaConfig.from_dict(settings)
    model = RobertaForSequenceClassification(config).eval()
    folder = tmp_path_factory.mktemp("classifier")
    saved = with_tokenizer(model, folder / "model")
    sentences = [
        " ".join(str(sentence).split()[: 1 + index % 5])
        for index, sentence in enumerate(pairs(48)["a"])
    ]
    texts = {"train": sentences[:24], "validation": sentences[24:]}
    labels = {split: [index % 3 for index in range(24)] for split in texts}
    for split in texts:
        lines = [
            json.dumps({"text": text, "label": label})
            for text, label in zip(texts[split], labels[split], strict=True)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    columns = {"text": "text", "label": "label"}
    task = {"kind": "text", "head": "native", "columns": columns, "metric": "accuracy"}
    document = described(
        saved,
        {**task, "labels": ["0", "1", "2"], "slots": SLOTS},
        substitutes=["average"],
        orders=AVERAGED,
        keep=[0.5],
    )
    return Classifier(model, saved, texts, labels, score_study(document, folder, folder / "store"))


AVERAGED = ["effect", "distance", "lambda"]
"""Methods that compare with the average."""


def average_by_position(classifier: Classifier) -> torch.Tensor:
    """Of each pair of positions, the last tokens of shorter texts as any others."""
    size = 0
    matrices: list[torch.Tensor] = []
    classifier.model.set_attn_implementation("eager")
    for text in classifier.texts["train"]:
        inputs = classifier.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            attention = classifier.model(**inputs, output_attentions=True).attentions
        matrices.append(torch.cat(attention))
        size = max(size, matrices[-1].shape[-1])
    sums = torch.zeros(*matrices[0].shape[:2], size, size)
    counts = torch.zeros(size, size)
    for matrix in matrices:
        length = matrix.shape[-1]
        sums[..., :length, :length] += matrix
        counts[:length, :length] += 1
    return sums / counts.clamp(min=1)


def scores_in_memory(
    classifier: Classifier, method: str, substitute: str | torch.Tensor
) -> np.ndarray:
    measurement = papa.measure(
        classifier.model,
        {
            split: {"text": classifier.texts[split], "label": classifier.labels[split]}
            for split in classifier.texts
        },
        tokenizer=classifier.tokenizer,
        score="accuracy",
        substitutes=[substitute],
        orders=[method],
        keep=[1],
        probe_seeds=[0],
        ranking_seeds=[0],
        progress=False,
    )
    return measurement.head_scores["score"].to_numpy()


@pytest.mark.parametrize("method", AVERAGED)
def test_scores_of_an_encoder_beside_its_average_are_the_same(
    classifier: Classifier, method: str
) -> None:
    (pair,) = classifier.study.steps.pairs
    expected = pair.head_scores(classifier.study.artifacts)[method].mean.ravel()
    scores = scores_in_memory(classifier, method, "average")
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    by_position = scores_in_memory(classifier, method, average_by_position(classifier))
    assert np.abs(by_position - expected).max() > 1e-4, "negative control"
