"""Other libraries take an export: pipelines, sentence-transformers, graphs, int8 and ONNX."""

from pathlib import Path

import jaxtyping
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import papa
from tests.exported.exports import (
    FIRST,
    HEADS,
    SECOND,
    SLOTS,
    TOLERANCE,
    banded,
    constants,
    difference,
    headed,
    padded,
    saved,
    states,
    tokenizer_of,
)
from tests.library.pages import PAGE, pasted
from tests.make import outputs_of, random_model


def test_pipelines_take_pairs(tmp_path: Path) -> None:
    model = headed("BertForSequenceClassification")
    tokenizer = tokenizer_of()
    to = tmp_path / "to"
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=to, pairs=True)
    answer = transformers.pipeline("text-classification", str(to))
    both = {"text": FIRST[0], "text_pair": SECOND[0]}
    assert answer([both])[0]["label"] in model.config.id2label.values()
    with pytest.raises(papa.PapaError, match="input 0"):
        transformers.pipeline("feature-extraction", str(to))(FIRST[0])


def test_sentence_transformers_takes_it(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == SLOTS
    inputs = padded(AutoTokenizer.from_pretrained(folder))
    means = [text.mean(0) for text in states(AutoModel.from_pretrained(folder), inputs)]
    assert difference(model.encode(FIRST, convert_to_tensor=True), means) < TOLERANCE


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")  # torch's and onnxscript's own
def test_recipes_of_page_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")
    folder.rename(tmp_path / "my-encoder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    namespace = pasted(PAGE.parent / "how-to" / "export.md")
    both = (states(namespace[name], namespace["inputs"]) for name in ("int8", "model"))
    assert 0 < difference(*both) < 0.5
    assert namespace["states"].shape == (2, 5, 32)
    session = onnxruntime.InferenceSession("model.onnx")
    inputs = {name: values[:1] for name, values in namespace["inputs"].items()}
    graph, *_ = session.run(None, {name: values.numpy() for name, values in inputs.items()})
    real = inputs["attention_mask"].bool()
    expected = outputs_of(namespace["model"], inputs).last_hidden_state[real]
    assert difference(torch.from_numpy(graph)[real], expected) < TOLERANCE


@pytest.mark.unchecked
@pytest.mark.parametrize("family", ["albert", "mpnet", "deberta_v2_xlarge"])
def test_a_graph_takes_batches_of_another_shape(family: str, tmp_path: Path) -> None:
    model = random_model(family).float()
    exported, tokens = saved(model, tokenizer_of(family), tmp_path / "export", banded())
    names = ("input_ids", "attention_mask")
    traced = {name: padded(tokens)[name][:2] for name in names}
    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    shapes = dict.fromkeys(names, sizes)
    graph = torch.export.export(exported, (), kwargs=traced, dynamic_shapes=shapes)
    fewer = tokens(SECOND, padding=True, return_tensors="pt")
    inputs = {name: fewer[name] for name in names}
    expected = states(exported, inputs)
    assert difference(states(graph.module(), inputs), expected) < TOLERANCE
    assert difference(expected, states(model, inputs)) > 0.1
