"""An exported encoder saved again: as it was, after its weights were trained, and inside a model of
sentence-transformers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

import papa
from papa.errors import ArtifactError
from papa.exporting import ExportedEncoder
from tests.exporting.conftest import FIRST, Case


def states(model: ExportedEncoder) -> torch.Tensor:
    assert model.tokenizer is not None
    found = model(**model.tokenizer(FIRST, padding=True, return_tensors="pt")).last_hidden_state
    assert found is not None
    return found


def test_an_export_is_saved_as_it_was(written: Path, tmp_path: Path) -> None:
    papa.save_exported(papa.load_exported(written), tmp_path / "again")
    for path in written.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("family", ["modernbert", "deberta"])
def test_maps_that_are_taken_apart_are_saved_in_one(
    make_case: Callable[..., Case], tmp_path: Path, family: str
) -> None:
    case, first, second = make_case(family, "text"), tmp_path / "first", tmp_path / "second"
    model = case.exported(first)
    papa.save_exported(model, second)
    assert (second / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".query." in name or ".value." in name:
                parameter.mul_(1.5)
    papa.save_exported(model, tmp_path / "tuned")
    assert (states(model) - states(papa.load_exported(first))).abs().max() > 1e-2
    torch.testing.assert_close(states(papa.load_exported(tmp_path / "tuned")), states(model))


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


POOLING = f"{Pooling.__module__}.Pooling"


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ({"type": "os.system", "path": ""}, "names 'os.system', and folders hold"),
        ({"type": "sentence_transformers.models.Transformer", "path": ""}, "names 'sentence_tr"),
        ({"type": "sentence_transformers.base.model.pickle", "path": ""}, "names 'sentence_tr"),
        ({"type": ["os.system"], "path": ""}, "is damaged"),
        ({"type": POOLING, "path": "../.."}, "is damaged"),
        ({"type": POOLING, "path": 3}, "is damaged"),
        ({"type": POOLING, "path": "gone"}, "is damaged"),
        ({"path": ""}, "is damaged"),
    ],
)
def test_a_module_that_a_folder_may_not_name_is_refused(
    written: Path, tmp_path: Path, module: dict[str, object], sentence: str
) -> None:
    sentence_model(written).save_pretrained(str(tmp_path / "model"))
    (tmp_path / "model" / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(ArtifactError, match=sentence):
        papa.load_sentence_transformer(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", "[]"),
        ("modules.json", "{}"),
        ("1_Pooling/config.json", '{"pooling_mode": 7}'),
        ("1_Pooling/config.json", "[]"),
        ("config_sentence_transformers.json", '{"prompts": 3}'),
        ("config_sentence_transformers.json", '{"similarity_fn_name": "os.system"}'),
    ],
)
def test_a_damaged_model_is_one_sentence(
    written: Path, tmp_path: Path, file: str, content: str
) -> None:
    sentence_model(written).save_pretrained(str(tmp_path / "model"))
    (tmp_path / "model" / file).write_text(content)
    with pytest.raises(ArtifactError, match=r"is damaged .*: save the model again"):
        papa.load_sentence_transformer(tmp_path / "model")


def test_code_in_weights_beside_a_model_is_never_run(written: Path, tmp_path: Path) -> None:
    """Their ``Transformer`` takes from a settings file that weights are read as pickles."""
    folder, fired = tmp_path / "model", tmp_path / "fired"
    sentence_model(written).save_pretrained(str(folder))
    torch.save(_Planted(fired), folder / "pytorch_model.bin")
    (folder / "config.json").write_text(
        '{"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 10}'
    )
    (folder / "sentence_bert_config.json").write_text(
        '{"model_args": {"weights_only": false, "use_safetensors": false}}'
    )
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ArtifactError, match="names 'sentence_transformers"):
        papa.load_sentence_transformer(folder)
    assert not fired.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert fired.exists(), "the weights hold code"


class _Planted:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return os.mkdir, (self.folder,)
