"""Keys hold all that a stage is given, and a stage is given no more than it reads."""

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel

from papa.heads.constants import ConstantMatrices
from papa.models.reference import EncoderReference
from papa.scores.custom import CustomCode
from papa.spec import FilesSource
from papa.spec.file import override, resolve_study
from papa.tasks.inputs import StudyInputs
from papa.tasks.pair_steps import PairSteps
from papa.tasks.pipeline import Pipeline, build_pipeline
from papa.tasks.step import Step
from papa.tasks.substitutes import supplied_matrices
from papa.text.sources import fingerprint
from tests.flows.conftest import SMALL

pytestmark = pytest.mark.unchecked

ENCODER = EncoderReference("name", "commit", "/folder", "weights", "words", "bert", 2, 3, 12, 64)
TASK = {**SMALL["tasks"][0], "probe": {"learning_rate": 1e-3, "batch_size": 16, "epochs": 2}}
OWN = {"name": "own", "base": "reviews", "slots": 32, "head": "native", "metric": "agreement"}
DESIGN: dict[str, Any] = {
    **SMALL,
    "encoders": ["name"],
    "tasks": [TASK],
    "substitutes": ["average", "low_rank", "resampled_output"],
    "orders": ["lambda", "random", "gradient", "distance"],
    "ranking": {"rows": 10, "evaluations": 400},
    "ranking_seeds": [0],
}
METRIC = "negative_log_perplexity"
SCORED = ["lambda", "effect", "distance"]


def steps_of(document: dict[str, Any] = DESIGN, encoder: EncoderReference = ENCODER) -> Pipeline:
    study = resolve_study(document, folder=Path(), origin="test")
    sources = {task.source: "content" for task in study.tasks}
    return build_pipeline(StudyInputs(study, (encoder,), sources, {encoder: "label"}))


def keys(changes: str | EncoderReference = "") -> dict[str, set[str]]:
    """Of the steps of each stage, with settings changed, or of another encoder."""
    document = deepcopy(DESIGN)
    keys_by_stage = dict[str, set[str]]()
    encoder = ENCODER
    if isinstance(changes, EncoderReference):
        encoder = changes
        changes = ""
    for setting in changes.split():
        override(document, setting)
    for step in steps_of(document, encoder).steps:
        keys_by_stage.setdefault(step.stage.name, set()).add(step.key)
    return keys_by_stage


ALL = (
    "tokenise",
    "average",
    "train_lambda",
    "train_frozen_probe",
    "score_heads",
    "constant_outputs",
    "probe",
)
TEXT = ("tokenise", "average")
TRAINED = ("probe", "baseline")
CHANGES: list[tuple[str | EncoderReference, tuple[str, ...], tuple[str, ...]]] = [
    (replace(ENCODER, digest="other weights"), ALL[1:], ALL[:1]),
    (replace(ENCODER, tokenizer_digest="other words"), ALL, ()),
    (replace(ENCODER, precision="bfloat16"), ALL[1:], ALL[:1]),
    (replace(ENCODER, name="other", revision="other", folder="/other"), (), ALL),
    ("tasks.0.name=other tasks.0.base=reviews", ("aggregate",), ALL),
    ("tasks.0.slots=16", ALL, ()),
    ("tasks.0.train_rows=32", ALL, ()),
    ("layout.segment_ids=stay", ALL, ()),
    (
        "tasks.0.probe.weight_decay=0.1",
        ("train_lambda", "train_frozen_probe", *TRAINED),
        (*TEXT, "constant_outputs"),
    ),
    ("ranking.rows=11", ("train_lambda", "score_heads"), TRAINED[1:]),
    ("ranking.epochs=9", ("train_lambda",), ("score_heads",)),
    ("ranking.learning_rate=0.5", ("train_lambda",), ("score_heads",)),
    ("ranking.learning_rate=0.001", (), ("train_lambda",)),
    ("ranking_seeds=[5]", ("train_lambda", "train_frozen_probe"), TEXT),
    ("ranking.evaluations=500", (), ("train_lambda", "train_frozen_probe", "score_heads")),
    (
        "probe_seeds=[0,7]",
        (*TRAINED, "constant_outputs"),
        (*TEXT, "train_lambda", "train_frozen_probe", "score_heads"),
    ),
    ("features.dtype=bfloat16", TRAINED, ("train_lambda", "score_heads")),
    ("keep=[1,0.25,0]", ("probe",), ("train_lambda", "score_heads", "baseline")),
    ("execution.shard_rows=7 execution.features_budget_gb=1", (), (*ALL, "aggregate")),
]


@pytest.mark.parametrize(("changes", "different", "same"), CHANGES)
def test_keys_change_with_results(
    changes: str | EncoderReference, different: tuple[str, ...], same: tuple[str, ...]
) -> None:
    before = keys()
    after = keys(changes)
    assert [stage for stage in different if before[stage] == after[stage]] == []
    assert [stage for stage in same if before[stage] != after[stage]] == []


def test_units_are_in_keys_of_scores_of_groups_alone() -> None:
    task = {**OWN, "kind": "causal", "metric": METRIC, "columns": {"label": None}}
    design = DESIGN | {"tasks": [task], "substitutes": ["average"], "orders": SCORED}
    decoder = replace(ENCODER, model_type="llama", key_heads=1)
    by_head = steps_of(design, decoder).steps
    by_group = steps_of({**design, "unit": "kv_group"}, decoder).steps
    assert not any("unit" in step.spec for step in by_head)
    of_groups = {step.stage.name for step in by_group if "unit" in step.spec}
    assert of_groups == {"train_lambda", "sweep_heads", "score_heads", "joint_effects"}
    keys_of_heads = {step.key for step in by_head}
    shared = {step.stage.name for step in by_group if step.key in keys_of_heads}
    assert {"tokenise", "average", "answer"} <= shared
    assert not shared & {*of_groups, "aggregate"}


def test_metrics_share_the_steps_that_read_nothing_else_of_them() -> None:
    metrics = ("accuracy", "matthews", "agreement", "spearman")
    tasks = [{**OWN, "name": metric, "metric": metric} for metric in metrics]
    design = DESIGN | {"tasks": tasks, "substitutes": ["average"], "orders": ["lambda"]}
    counts = Counter(step.stage.name for step in steps_of(design).steps)
    # The texts and the loss of numbers are others, and so is the loss without labels.
    assert counts["tokenise"] == 2
    assert counts["train_lambda"] == 3
    # With no and with all heads constant a text's answers are one, beside those by each λ.
    assert counts["answer"] == 2 + 2 + 3
    assert counts["score_answers"] == 3 * len(metrics)


def changed(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """``value`` with one thing in it changed, for each thing in it; and the path of that thing."""
    if isinstance(value, Step):
        yield path, value.with_arguments(**{next(iter(value.arguments)): "another"})
    elif isinstance(value, PairSteps | EncoderReference | CustomCode | ConstantMatrices):
        return  # A test of its own.
    elif isinstance(value, BaseModel):
        for name, entry in vars(value).items():
            for below, new in changed(entry, f"{path}.{name}"):
                yield below, value.model_copy(update={name: new})
    elif is_dataclass(value):
        for field in fields(value):
            for below, new in changed(getattr(value, field.name), f"{path}.{field.name}"):
                yield below, replace(value, **{field.name: new})
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            for below, new in changed(entry, f"{path}.{name}"):
                yield below, {**value, name: new}
    elif isinstance(value, tuple):
        yield path, (*value, "another")
    else:
        yield path, f"another {value}"


def test_everything_that_a_stage_is_given_is_in_its_key() -> None:
    """But for names, and for a source, of which the content is."""
    left = set[str]()
    keyed = set[str]()
    labelled = {**OWN, "name": "labelled", "metric": "accuracy"}
    changes = {"tasks": [OWN, labelled], "substitutes": ["average"], "orders": ["lambda"]}
    native = steps_of(DESIGN | changes)
    for step in (*steps_of().steps[:-1], *native.steps[:-1]):
        for name, value in step.arguments.items():
            for path, new in changed(value, name):
                keyed.add(f"{step.stage.name} {path}")
                if step.with_arguments(**{name: new}).key == step.key:
                    left.add(path)
    assert left == {"task.name", "task.source.kind", "task.source.name"}
    assert len(keyed) > 100
    stages = {path.split()[0] for path in keyed}
    assert stages == {*ALL, "baseline", "answer", "one_answer", "score_answers"}


def test_a_part_of_a_specification_has_no_more_than_what_is_in_the_key() -> None:
    """The negative control: whoever reads a setting that its key lacks, is refused it."""
    (step,) = (step for step in steps_of().steps if step.stage.name == "train_lambda")
    assert step["task"].probe.weight_decay == 0
    for settings, name in ((step["task"], "positive"), (step["ranking"], "evaluations")):
        with pytest.raises(AttributeError, match=name):
            getattr(settings, name)


def test_matrices_and_code_of_the_users_own_are_in_the_key() -> None:
    visible = torch.ones(4, 4, dtype=torch.bool)

    def step(matrices: torch.Tensor, visible: torch.Tensor = visible) -> Step:
        return supplied_matrices.step(
            "supplied", encoder=ENCODER, matrices=ConstantMatrices(matrices, visible, "own")
        )

    ones = torch.ones(2, 3, 4, 4)
    assert len({step(ones), step(0 * ones), step(ones, ~visible)}) == 3
    assert step(ones) == step(ones.clone())
    (scored, *_) = (step for step in steps_of().steps if step.stage.name == "probe")
    assert scored != scored.with_arguments(code=CustomCode(len))


def test_steps_of_one_key_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = (step for step in steps_of().steps if step.stage.name == "train_lambda")
    same = replace(step.with_arguments(text=replace(step["text"], name="other")), name="other name")
    assert len({step, same, pickle.loads(pickle.dumps(step))}) == 1  # noqa: S301
    assert same != step.with_arguments(seed=1)
    before = step.key
    monkeypatch.setattr(step.stage, "version", 99)
    assert step.with_arguments().key != before


def test_a_fingerprint_is_of_everything_that_decides_how_files_are_read(tmp_path: Path) -> None:
    names = ("train.jsonl", "validation.jsonl", "other.jsonl")
    for name in names:
        (tmp_path / name).write_text(f"content of {name}")
    train, validation, another = (tmp_path / name for name in names)
    source = FilesSource(kind="files", train=train, validation=validation)
    changes = [{"train": another}, {"validation": another}, {"format": "csv"}, {"header": False}]
    fingerprints = {fingerprint(source.model_copy(update=change)) for change in ({}, *changes)}
    assert len(fingerprints) == 1 + len(changes)
