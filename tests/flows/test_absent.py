"""Without Prefect, Ray and MLflow: the library, and all commands but those that run studies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.flows.conftest import COMMAND, HURRIED, SMALL, Finished, finish, start, write_study

pytestmark = pytest.mark.server

LIBRARY = """
import torch
import papa
from transformers import BertConfig, BertModel
sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}
model = BertModel(BertConfig(intermediate_size=8, **sizes)).eval()
with papa.ablated(model, [(0, 1)]):
    print(model(input_ids=torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape)
encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16)
print(papa.measure(encoder, "reviews", fractions=[1, 0], train_rows=32, validation_rows=32))
"""


def without(*arguments: str, program: str = COMMAND) -> Finished:
    with start(*arguments, program=f"import tests.flows.absent\n{program}") as process:
        return finish(process)


def test_the_library_measures() -> None:
    finished = without(program=LIBRARY)
    assert finished.code == 0, finished.err
    assert "torch.Size([1, 3, 8])" in finished.out
    assert "word embeddings alone" in finished.out


def test_what_runs_studies_says_what_to_install(tmp_path: Path) -> None:
    study, store = write_study(tmp_path, SMALL), ("--store", str(tmp_path / "store"))
    for command in (["run", study], ["ui"]):
        finished = without(*command, *store)
        assert finished.code == 1
        assert finished.err.splitlines()[0] == (
            "error: studies run on Prefect, Ray and MLflow, and prefect, ray, mlflow cannot be "
            "found here: pip install 'papa-attention[studies]'"
        )
    assert not (tmp_path / "store").exists()
    finished = without("doctor", *store)
    assert finished.code == 1, finished.err
    assert "Studies cannot run: mend" in finished.out


def test_a_finished_study_is_exported(tiny: tuple[str, Path], tmp_path: Path) -> None:
    (study, finished), to = tiny, tmp_path / "to"
    store = shutil.copytree(finished, tmp_path / "store")
    export = ["export", "small", "--fraction", "0.5", "--to", str(to)]
    for command in (["check", study], ["list"], ["report", "small"], export):
        done = without(*command, "--store", str(store), program=HURRIED)
        assert done.code == 0, done.err
    assert (to / "model.safetensors").is_file()
