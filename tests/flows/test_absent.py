"""Without Prefect, Ray and MLflow: the library, and all commands but those that run studies."""

import json
import shutil
from pathlib import Path

import pytest

from tests.flows.conftest import Finished, finish, start

pytestmark = pytest.mark.server

PROGRAM = """
import json, sys
from importlib.machinery import PathFinder

absent = {"prefect", "ray", "mlflow", "fastapi", "sqlalchemy", "alembic"}

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, *where):
        return None if name.partition(".")[0] in absent else PathFinder.find_spec(name, *where)

    @classmethod
    def find_distributions(cls, context):
        found = PathFinder.find_distributions(context)
        return (one for one in found if one.name.lower() not in absent)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from tests.flows.conftest import invoke

commands, encoder = sys.argv[1:]
for command in json.loads(commands):
    print(json.dumps(vars(invoke(*command))))
import papa
import torch
from transformers import BertConfig, BertModel
sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}
model = BertModel(BertConfig(intermediate_size=8, **sizes)).eval()
with papa.ablated(model, [(0, 1)], substitute="zeros"):
    print(model(input_ids=torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape)
loaded = papa.load_encoder(encoder, slots=16)
print(papa.measure(loaded, "reviews", keep=[1, 0], train_rows=32, validation_rows=32))
"""
"""Commands one after the other, each told on a line; then the library."""


def test_only_running_needs_engines(tiny: tuple[str, Path], shallow: str, tmp_path: Path) -> None:
    store = ("--store", str(shutil.copytree(tiny[1], tmp_path / "store")))
    none = ("--store", str(tmp_path / "none"))
    running = [["run", tiny[0], *none], ["ui", *none]]
    reading = [
        *(["check", tiny[0], *store], ["list", *store], ["heads", "small", *store]),
        ["report", "small", *store],
        ["export", "small", "--keep", "0.5", "--to", str(tmp_path / "to"), *store],
    ]
    with start(json.dumps([*running, *reading]), shallow, program=PROGRAM) as process:
        ended = finish(process)
    assert ended.code == 0, ended.err
    *lines, printed = ended.out.split("\n", len(running) + len(reading))
    commands = [Finished(**json.loads(line)) for line in lines]
    for finished in commands[:2]:
        assert finished.code == 1
        line = finished.err.splitlines()[0]
        assert line.startswith("error: ")
        assert "prefect, ray, mlflow" in line
        assert "studies" in line
    assert not (tmp_path / "none").exists()
    assert "warning: studies run on Prefect, Ray and MLflow" in commands[2].out
    for finished in commands[2:]:
        assert finished.code == 0, finished.err
    assert (tmp_path / "to" / "model.safetensors").is_file()
    assert "torch.Size([1, 3, 8])" in printed
    assert "word embeddings alone" in printed
