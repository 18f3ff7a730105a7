"""Inputs that are not what the key says: they are refused, and nothing is published."""

from pathlib import Path

import pytest
import torch

from papa.errors import DataError, EncoderError
from papa.models.encoder import load_encoder
from papa.models.files import weight_files
from papa.models.reference import EMBEDDED, resolve_encoder
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, TaskSpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.run import run_here
from papa.tasks.tokenise import tokenise
from papa.text.sources import fingerprint
from tests.corpora.reviews import write_rows
from tests.finished import Told
from tests.flows.conftest import task_on
from tests.hub.encoders import write_encoder
from tests.models.inputs import change_configuration

BERT = "google-bert/bert-base-uncased"


def test_auto_is_float32_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """So keys, metadata, the stored specification and the report name the precision."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    for precision, expected in {"auto": "float32", "bfloat16": "bfloat16"}.items():
        document = {"name": "s", "encoders": [EMBEDDED], "tasks": ["reviews"]}
        document |= {"precision": precision, "execution": {"device": "cpu"}}
        resolved = resolve_inputs(resolve_study(document, folder=Path(), origin="test")).inputs()
        assert resolved.study.precision == expected
        assert {encoder.precision for encoder in resolved.encoders} == {expected}


@pytest.mark.parametrize(
    ("stored", "device", "expected"),
    [
        ("bfloat16", "cuda", "bfloat16"),
        ("float32", "cuda", "float32"),
        ("bfloat16", "cpu", "float32"),
    ],
)
def test_auto_is_what_weights_are_stored_in_on_a_gpu(
    stored: str, device: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "bert"
    write_encoder(BERT, folder)
    change_configuration(folder, {"dtype": stored})
    document = {"name": "s", "encoders": [str(folder)], "tasks": ["reviews"]}
    document |= {"precision": "auto", "execution": {"device": device}}
    study = resolve_study(document, folder=Path(), origin="test")
    (encoder,) = resolve_inputs(study).inputs().encoders
    assert encoder.precision == expected


def rows(word: str) -> list[dict[str, object]]:
    return [{"text": f"{word} {row}", "label": row % 2} for row in range(8)]


def test_inputs_that_changed_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, a tokenizer and a configuration."""
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "bert"
    write_encoder(BERT, folder)
    encoder = resolve_encoder(EncoderSpec(name=str(folder)))
    splits = {split: tmp_path / f"{split}.jsonl" for split in ("train", "validation")}
    for path in splits.values():
        write_rows(path, rows("before"))
    source = {"kind": "files", **{split: str(path) for split, path in splits.items()}}
    task = TaskSpec.model_validate(task_on("task", source, slots=16))
    content = fingerprint(task.source)
    step = tokenise.step(
        "tokenise", tokenizer=encoder, task=task, layout=LayoutSpec(), fingerprint=content
    )
    for path in splits.values():
        write_rows(path, rows("after"))
        with pytest.raises(DataError, match="task 'task'"):
            run_here([step], store, ExecutionSpec(), Told())
        write_rows(path, rows("before"))
    path = folder / "tokenizer.json"
    before = (folder / "tokenizer.json").read_text()
    path.write_text(before.replace("##a", "##z"))
    with pytest.raises(EncoderError, match=f"tokenizer of .*{folder}"):
        run_here([step], store, ExecutionSpec(), Told())
    assert not step.is_complete(store)
    path.write_text(before)
    run_here([step], store, ExecutionSpec(), Told())
    assert step.is_complete(store)
    load_encoder(encoder)
    change_configuration(folder, {"layer_norm_eps": 0.1})
    with pytest.raises(EncoderError, match="digest"):
        load_encoder(encoder)
    assert resolve_encoder(EncoderSpec(name=str(folder))).digest != encoder.digest


def test_weights_exchanged_after_they_were_loaded(tmp_path: Path) -> None:
    """They are in memory: whoever writes to the file does not write to the encoder."""
    folder = tmp_path / "encoder"
    write_encoder(BERT, folder)
    encoder = resolve_encoder(EncoderSpec(name=str(folder)))
    loaded = load_encoder(encoder)
    before = [parameter.clone() for parameter in loaded.model.parameters()]
    (path,) = weight_files(folder)
    with path.open("r+b") as file:  # As ``cp`` does: the file keeps its inode.
        file.seek(-64, 2)
        file.write(bytes(64))
    assert all(map(torch.equal, before, loaded.model.parameters()))
    with pytest.raises(EncoderError, match=r"changed meanwhile|is damaged"):
        load_encoder(encoder)


def test_a_misspelt_prefix_of_an_order_is_no_code_alone() -> None:
    """It looks like ``module:name``; what else is wrong is named beside it."""
    orders = ["reverse:lambda", "lamda"]
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": ["reviews"], "orders": orders}
    resolved = resolve_inputs(resolve_study(document, folder=Path(), origin="test"))
    code, order = map(str, resolved.problems)
    assert "'reversed'" in code
    assert "orders.1" in order
