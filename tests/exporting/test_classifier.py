"""The study's probe in an exported folder: it answers as in the study, in pipelines of
transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import pipeline

import papa
from papa.attention.replacement import replaced
from papa.encoders.encoder import load_encoder
from papa.errors import ArtifactError
from papa.exporting.classifier import TrainedProbe
from papa.exporting.document import CLASSIFIER, ExportDocument
from papa.probes.evaluate import build_probe, evaluate_cell
from papa.spec import ExecutionSpec, FeaturesSpec
from papa.spec.orders import Head
from tests.exporting.conftest import FIRST, SECOND, Case


def trained(case: Case, heads: list[Head], scratch: Path, epochs: int = 60) -> TrainedProbe:
    """A probe that has learned the case's few texts while ``heads`` are constant."""
    encoder = load_encoder(case.reference)
    probe = case.task.probe.model_copy(update={"epochs": epochs, "learning_rate": 1e-2})
    task = case.task.model_copy(update={"probe": probe})
    module = build_probe(encoder, case.corpus, task, [3])
    with replaced(encoder, case.constants, heads):
        (score,) = evaluate_cell(
            encoder,
            case.corpus,
            task,
            [3],
            features=FeaturesSpec(),
            execution=ExecutionSpec(),
            scratch=scratch,
            probe=module,
        )
    names = tuple(case.corpus.label_names or ())
    return TrainedProbe(module, 3, names, task.metric, 1, score.examples)


def exported(case: Case, heads: list[Head], probe: TrainedProbe, folder: Path) -> ExportDocument:
    return case.export(folder, heads, examples=case.split, classifier=probe)


def predicted(case: Case, heads: list[Head], probe: TrainedProbe) -> np.ndarray:
    """What the study's own probe says of the case's rows."""
    from papa.corpora.batches import micro_batch
    from papa.probes.packed import live_features

    encoder = load_encoder(case.reference)
    batch = micro_batch(case.split, case.split.rows)
    with torch.inference_mode(), replaced(encoder, case.constants, heads):
        features = live_features(encoder.token_states(batch), case.split, batch)
        return probe.probe.predictions(features, torch.arange(len(features)))[0].numpy()


@pytest.mark.parametrize(("family", "kind"), [("electra", "text"), ("roberta", "pair")])
def test_a_pipeline_classifies_as_the_studys_probe(
    make_case: Callable[..., Case], family: str, kind: str, tmp_path: Path
) -> None:
    case = make_case(family, kind)
    heads = case.some_heads()
    probe = trained(case, heads, tmp_path)
    document = exported(case, heads, probe, tmp_path / "export")
    assert document.classifier is not None
    assert document.classifier["same"] == document.classifier["rows"] == len(FIRST)
    model = papa.load_exported(tmp_path / "export")
    classify = pipeline("text-classification", model=model, tokenizer=model.tokenizer, device="cpu")
    pairs = [{"text": a, "text_pair": b} for a, b in zip(FIRST, SECOND, strict=True)]
    answers = classify(pairs if kind == "pair" else FIRST, batch_size=2)
    expected = predicted(case, heads, probe)
    assert len(set(expected.tolist())) == 2, "or any classifier of one answer would pass"
    assert [one["label"] for one in answers] == [probe.labels[number] for number in expected]
    assert all(0.5 <= one["score"] <= 1 for one in answers)


def test_other_heads_or_weights_answer_otherwise(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    """Negative control: the agreement that is written can be less than whole."""
    case = make_case("electra", "text")
    heads = case.some_heads()
    probe = trained(case, heads, tmp_path)
    with torch.no_grad():
        probe.probe.classifier.bias += torch.tensor([[100.0, 0.0]])  # type: ignore[operator,union-attr]
    found = exported(case, heads, probe, tmp_path / "export").classifier
    assert found is not None
    assert 0 < found["same"] < found["rows"]
    assert (
        f"answers {found['same']} of {found['rows']} validation rows"
        in (tmp_path / "export" / "README.md").read_text()
    )
    states = papa.load_exported(tmp_path / "export")
    inputs = states.tokenizer(FIRST, padding=True, return_tensors="pt")  # type: ignore[misc]
    before = states(**inputs).logits
    exported(case, heads[1:], probe, tmp_path / "other")
    assert not torch.allclose(papa.load_exported(tmp_path / "other")(**inputs).logits, before)


def test_words_are_classified_token_by_token(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    case = make_case("electra", "words")
    heads = case.some_heads()
    probe = trained(case, heads, tmp_path)
    found = exported(case, heads, probe, tmp_path / "export").classifier
    assert found is not None
    assert found["same"] == found["rows"] == len(FIRST)
    model = papa.load_exported(tmp_path / "export")
    tag = pipeline(
        "token-classification",
        model=model,
        tokenizer=model.tokenizer,
        ignore_labels=[],
        device="cpu",
    )
    answers = [one["entity"] for text in FIRST for one in tag(text)]
    assert answers == [probe.labels[number] for number in predicted(case, heads, probe)]
    assert set(answers) == {"long", "short"}


def test_a_folder_without_a_probe_has_no_logits(written: Path) -> None:
    model = papa.load_exported(written)
    inputs = model.tokenizer(FIRST, padding=True, return_tensors="pt")  # type: ignore[misc]
    assert model(**inputs).logits is None


def test_a_damaged_classifier_is_refused(make_case: Callable[..., Case], tmp_path: Path) -> None:
    case = make_case("electra", "text")
    heads = case.some_heads()
    folder = tmp_path / "export"
    exported(case, heads, trained(case, heads, tmp_path, 1), folder)
    weights = load_file(folder / CLASSIFIER)
    save_file(weights | {"dense.bias": weights["dense.bias"] + 1}, folder / CLASSIFIER)
    with pytest.raises(ArtifactError, match=r"classifier\.safetensors is damaged"):
        papa.load_exported(folder)
    (folder / CLASSIFIER).unlink()
    with pytest.raises(ArtifactError, match=r"classifier\.safetensors is missing"):
        papa.load_exported(folder)
