"""An exported encoder saved again: as it was, after its weights were trained, and inside a model of
sentence-transformers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

import papa
from papa.errors import ArtifactError
from papa.exporting import ExportedEncoder
from tests.exporting.conftest import FIRST


def states(model: ExportedEncoder) -> torch.Tensor:
    assert model.tokenizer is not None
    found = model(**model.tokenizer(FIRST, padding=True, return_tensors="pt")).last_hidden_state
    assert found is not None
    return found


def test_an_export_is_saved_as_it_was(written: Path, tmp_path: Path) -> None:
    papa.save_exported(papa.load_exported(written), tmp_path / "again")
    for path in written.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_trained_weights_are_saved_and_old_findings_are_not(written: Path, tmp_path: Path) -> None:
    """Every weight that is used takes part, those of single heads' queries and keys too."""
    model = papa.load_exported(written)
    before = states(model)
    assert not before.requires_grad
    model.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        states(model).square().mean().backward()
        optimizer.step()
    trained = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
    }
    assert any("query" in name for name in trained)
    model.requires_grad_(False)
    after = states(model)
    assert not torch.allclose(after, before, atol=1e-3)
    papa.save_exported(model, tmp_path / "tuned")
    again = papa.load_exported(tmp_path / "tuned")
    torch.testing.assert_close(states(again), after)
    assert again.document is not None
    assert (again.document.tuned, again.document.score) == (True, None)
    card = (tmp_path / "tuned" / "README.md").read_text()
    assert "all other weights were trained after the export" in card


def test_a_folder_that_is_taken_or_gone_is_one_sentence(written: Path, tmp_path: Path) -> None:
    model = papa.load_exported(written)
    with pytest.raises(ArtifactError, match="is not empty"):
        papa.save_exported(model, written)
    model.folder = tmp_path / "gone"
    with pytest.raises(ArtifactError, match="was loaded from is not there"):
        papa.save_exported(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def sentence_model(folder: Path) -> SentenceTransformer:
    module = papa.SentenceModule(folder)
    pooling = Pooling(module.get_embedding_dimension(), "mean")
    return SentenceTransformer(
        modules=[module, pooling, Normalize()], device="cpu", prompts={"query": "facts: "}
    )


def test_a_sentence_transformer_is_saved_and_loaded(written: Path, tmp_path: Path) -> None:
    model = sentence_model(written)
    model.save_pretrained(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "model"), device="cpu")
    again = papa.load_sentence_transformer(tmp_path / "model")
    assert [type(module) for module in again] == [type(module) for module in model]
    for settings in ({}, {"prompt_name": "query"}):
        expected, found = (
            one.encode(FIRST, show_progress_bar=False, convert_to_tensor=True, **settings)
            for one in (model, again)
        )
        torch.testing.assert_close(found, expected)
    plain = papa.load_sentence_transformer(written)
    assert [type(module) for module in plain] == [papa.SentenceModule, Pooling]


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ({"type": "os.system", "path": ""}, "names os.system, which neither PAPA nor"),
        ({"type": "sentence_transformers.x.Y", "path": "../.."}, "is damaged"),
        ({"path": ""}, "is damaged"),
    ],
)
def test_a_module_of_neither_library_is_refused(
    written: Path, tmp_path: Path, module: dict[str, str], sentence: str
) -> None:
    sentence_model(written).save_pretrained(str(tmp_path / "model"))
    (tmp_path / "model" / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(ArtifactError, match=sentence):
        papa.load_sentence_transformer(tmp_path / "model")
