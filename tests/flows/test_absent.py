"""Without Prefect, Ray and MLflow: the library, and all commands but those that run studies."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.conftest import Finished, finish, start

pytestmark = pytest.mark.server

PROGRAM = """
import json, sys
import tests.flows.absent
from tests.flows.conftest import HURRY, said

from importlib import import_module
vars(import_module("papa.export")).update(HURRY)
commands, encoder = sys.argv[1:]
for command in json.loads(commands):
    print(json.dumps(vars(said(*command))))
import papa
import torch
from transformers import BertConfig, BertModel
sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}
model = BertModel(BertConfig(intermediate_size=8, **sizes)).eval()
with papa.ablated(model, [(0, 1)]):
    print(model(input_ids=torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape)
loaded = papa.load_encoder(encoder, slots=16)
print(papa.measure(loaded, "reviews", fractions=[1, 0], train_rows=32, validation_rows=32))
"""
"""Commands one after the other, each told on a line; then the library."""


@dataclass(frozen=True)
class Without:
    """What commands said, by their names, what the library printed, and where they wrote."""

    said: dict[str, Finished]
    printed: str
    folder: Path


@pytest.fixture(scope="module")
def without(
    tiny: tuple[str, Path], shallow: str, tmp_path_factory: pytest.TempPathFactory
) -> Without:
    (study, finished), folder = tiny, tmp_path_factory.mktemp("absent")
    store = ("--store", str(shutil.copytree(finished, folder / "store")))
    none = ("--store", str(folder / "none"))
    commands = [
        *(["run", study, *none], ["ui", *none], ["check", study, *store]),
        *(["list", *store], ["heads", "small", *store], ["report", "small", *store]),
        ["export", "small", "--fraction", "0.5", "--to", str(folder / "to"), *store],
    ]
    with start(json.dumps(commands), shallow, program=PROGRAM) as process:
        ended = finish(process)
    assert ended.code == 0, ended.err
    *told, printed = ended.out.split("\n", len(commands))
    names = [command[0] for command in commands]
    said = {name: Finished(**json.loads(one)) for name, one in zip(names, told, strict=True)}
    return Without(said, printed, folder)


def test_the_library_measures(without: Without) -> None:
    assert "torch.Size([1, 3, 8])" in without.printed
    assert "word embeddings alone" in without.printed


def test_what_runs_studies_says_what_to_install(without: Without) -> None:
    for command in ("run", "ui"):
        assert without.said[command].code == 1
        assert without.said[command].err.splitlines()[0] == (
            "error: studies run on Prefect, Ray and MLflow, and prefect, ray, mlflow cannot be "
            "found here: pip install 'papa-attention[studies]'"
        )
    assert not (without.folder / "none").exists()
    assert "warning: studies run on Prefect, Ray and MLflow" in without.said["check"].out


@pytest.mark.parametrize("command", ["check", "list", "heads", "report", "export"])
def test_a_finished_study_is_read_and_exported(without: Without, command: str) -> None:
    assert without.said[command].code == 0, without.said[command].err
    assert (without.folder / "to" / "model.safetensors").is_file()
