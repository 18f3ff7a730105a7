"""The memory that a study is said to need, against what a worker really takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks.setting import setting
from flows.capacity import CapacityError, check_memory, mapped_bytes, weight_bytes, worker_bytes
from papa.encoders.files import TOKENIZER_FILES
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.spec import EncoderSpec, ExecutionSpec, StudySpec
from papa.spec.file import load_study
from papa.study.costs import Size
from papa.study.inputs import check_inputs
from tests.flows.conftest import SMALL, said, write_study

ROWS = 24
BASE = """
import sys
from transformers import BertConfig, BertModel
BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(sys.argv[1])
"""
WORK = """
import sys
from pathlib import Path
import torch
from benchmarks.memory import own_memory
from papa.attention.average import AttentionSums, average_split
from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.corpora.corpus import load_corpus
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import resolve_encoder
from papa.probes.evaluate import evaluate_cell
from papa.ranking.learned import train_lambda
from papa.spec import EncoderSpec, StudySpec
torch.set_num_threads(1)
stage, folder, corpus, study = sys.argv[1:]
study, corpus = StudySpec.model_validate_json(study), load_corpus(Path(corpus))
task = study.tasks[0]
with own_memory() as peak:
    encoder = load_encoder(resolve_encoder(EncoderSpec(name=folder)))
    constants = control("toeplitz", encoder.layers, encoder.heads, task.slots)
    if stage == "average":
        sums = average_split(encoder, corpus.split("train"), slots=task.slots, batch_tokens=512)
        total = AttentionSums(torch.zeros_like(sums.sums), torch.zeros_like(sums.counts))
        total.merge(sums)
        total.average()
    elif stage == "rank":
        train_lambda(encoder, constants, corpus, task, study.ranking)
    else:
        execution, scratch = study.execution, Path(folder)
        options = {"features": study.features, "execution": execution, "scratch": scratch}
        with replaced(encoder, constants, [(0, 0)]):
            evaluate_cell(encoder, corpus, task, study.seeds, **options)
    print(peak())
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> EncoderReference:
    """An encoder of BERT-base's size with random weights and the embedded encoder's tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, "-c", BASE, str(folder)], check=True, capture_output=True)
    embedded = Path(resolve_encoder(EncoderSpec(name=EMBEDDED)).folder)
    for name in TOKENIZER_FILES:
        if (embedded / name).is_file():
            shutil.copy(embedded / name, folder)
    return resolve_encoder(EncoderSpec(name=str(folder)))


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads a process's memory from /proc"
)
@pytest.mark.parametrize(
    ("stage", "budget"),
    [("average", 20), ("rank", 20), ("probe", 20), ("probe", 0)],
    ids=lambda value: str(value),
)
@pytest.mark.server
def test_a_process_takes_no_more_than_is_said(
    stage: str, budget: float, base: EncoderReference, shared: Path, tmp_path: Path
) -> None:
    """At BERT-base's size, S=256, on real text.

    More than is said would end in a killed worker. Nor is it half as much again: who has memory for
    three such processes would be refused the third.
    """
    text = setting("rte", ROWS, tmp_path, validation=ROWS)
    task = text.task.model_copy(update={"probe": text.task.probe.model_copy(update={"epochs": 1})})
    study = StudySpec(
        name="memory",
        encoders=(EncoderSpec(name=base.name),),
        tasks=(task,),
        execution=ExecutionSpec(features_budget_gb=budget),
    )
    command = [
        sys.executable,
        "-c",
        WORK,
        stage,
        base.folder,
        str(text.corpus.folder),
        study.model_dump_json(),
    ]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = float(finished.stdout.split()[-1]) * 2**20
    tokens = text.corpus.split("train").lengths.mean()
    estimate = worker_bytes(study, base, task, Size(ROWS, ROWS, float(tokens), 0.0))[stage]
    assert measured < estimate < 1.5 * measured


@pytest.mark.server
def test_weights_that_are_mapped_count_once(base: EncoderReference) -> None:
    assert mapped_bytes(base) == weight_bytes(base) > 4e8


def test_too_many_workers_are_refused_before_anything_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = said(
        "check", write_study(tmp_path, SMALL), "--store", str(store), "--workers", "10000"
    )
    assert finished.code == 1
    assert re.search(
        r"error: .* GB per worker, .* for 10000 workers .* GB are free: use --workers \d+",
        finished.err,
    )
    assert not (store / "artifacts").exists()


def test_what_is_advised_is_enough(tmp_path: Path) -> None:
    study = load_study(Path(write_study(tmp_path, SMALL)), ())
    inputs = check_inputs(study)
    with pytest.raises(CapacityError) as refused:
        check_memory(inputs, 10_000)
    advised = int(re.search(r"--workers (\d+)", str(refused.value))[1])
    assert 0 < advised < psutil.virtual_memory().available / 4e8
    check_memory(inputs, max(1, advised - 1))


def test_copies_of_the_weights_in_bfloat16_count(tmp_path: Path) -> None:
    study = load_study(Path(write_study(tmp_path, SMALL)), ())
    full = resolve_encoder(EncoderSpec(name=EMBEDDED))
    task, size = study.tasks[0], Size(24, 8, 20.0, 0.0)
    in_full, in_half = (
        worker_bytes(study, one, task, size) for one in (full, replace(full, precision="bfloat16"))
    )
    more = {stage: in_half[stage] - in_full[stage] for stage in in_full}
    copy = weight_bytes(full) / 2
    assert more == pytest.approx({"average": copy, "rank": 2 * copy, "probe": copy})
