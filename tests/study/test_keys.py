"""Every value that a stage is given is in its key, or in that of a step it reads, or listed below
with its reason.

Every field of every stage, and of what its fields hold, is changed by itself: the key must change.
A field that is added to a stage or a specification fails here until it enters the key or somebody
writes down why it need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from inspect import isabstract
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from pydantic import BaseModel

from papa.corpora import fingerprint
from papa.encoders.reference import EncoderReference
from papa.scores.own import OwnCode
from papa.spec import (
    ConstantsSpec,
    FeaturesSpec,
    FilesSource,
    LayoutSpec,
    RankingSpec,
    StudySpec,
    TaskSpec,
)
from papa.spec.cells import Cell
from papa.spec.methods import HEAD_SCORES
from papa.study.aggregate import Aggregate
from papa.study.average import Average
from papa.study.baseline import Baseline
from papa.study.constants import (
    Controls,
    Derived,
    Distances,
    Given,
    MeanQK,
    Outputs,
    ReusedBefore,
    Streamed,
)
from papa.study.own import Answers, Own
from papa.study.probe import Probe
from papa.study.rank import Rank
from papa.study.results import StudyPart
from papa.study.score_heads import FrozenProbe, ScoreHeads
from papa.study.step import Step
from papa.study.tokenise import Tokenise

ENCODER = EncoderReference("name", "commit", "/folder", "weights", "words", "bert", 2, 3, 12, 64)


def task(kind: str, metric: str, **columns: str) -> TaskSpec:
    return TaskSpec.model_validate(
        {
            "name": kind,
            "kind": kind,
            "source": {"kind": "files", "train": "/train.jsonl", "validation": "/validation.jsonl"},
            "columns": columns,
            "labels": ["no", "yes"],
            "metric": metric,
            "slots": 32,
            "probe": {"learning_rate": 1e-3, "batch_size": 16, "epochs": 2},
            "train_rows": 100,
            "validation_rows": 50,
        }
    )


TEXT = task("text", "accuracy", text="text", label="label")
MLM = task("mlm", "negative_log_perplexity", text="text")


CORPUS = Tokenise("t", ENCODER, TEXT, LayoutSpec(), "fingerprint")
CONSTANTS = Average("a", ENCODER, CORPUS, 32)
BASE = (ENCODER, CORPUS)
AVERAGED = (*BASE, CONSTANTS, TEXT)
SET = (("lambda", 36),)
RANKING = Rank("r", *AVERAGED, RankingSpec(rows=10, until_stable=True), 0, SET)
FROZEN = FrozenProbe("f", *BASE, TEXT, 0)
SCORED = ScoreHeads("s", *AVERAGED, RankingSpec(rows=10), ("distance",), 0, None)
BASELINE = Baseline("b", *BASE, TEXT, (0, 1), FeaturesSpec())
PROBED_SEEDS = ((3,), False, (0, 1), FeaturesSpec())
PROBE = Probe("p", *AVERAGED, "lambda", 2, {0: RANKING}, *PROBED_SEEDS)
ANSWERS = Answers("w", *AVERAGED, "lambda", 2, {0: RANKING}, (3,))
STUDY = StudySpec.model_validate(
    {
        "name": "study",
        "encoders": [{"name": "name"}],
        "tasks": [TEXT],
        "constants": [ConstantsSpec(kind="average", corpus=MLM)],
        "scores": [{"name": "own", "values": [[1.0, 2.0]]}],
        "code": [{"name": "my_code", "sha256": "digest"}],
        "reference": __file__,
    }
)
CELLS = {Cell("label", "text", "average", "lambda", 0.5): (PROBE,)}
BY_SEED = {"lambda": {0: RANKING}}
CONTROLS = {0: replace(RANKING, shuffled=True)}
PART = StudyPart("label", ENCODER, TEXT, CELLS, {"average": CONSTANTS}, BY_SEED, BASELINE, CONTROLS)
AGGREGATE = Aggregate("g", STUDY, (PART,), {"text": CORPUS})
EXAMPLES: tuple[Step, ...] = (
    CORPUS,
    Tokenise("t", ENCODER, MLM, LayoutSpec(), "fingerprint"),
    Controls("c", ENCODER, "local", 32, {"window": 3}),
    CONSTANTS,
    Derived("e", ENCODER, CONSTANTS, "low_rank", {"rank": 3}),
    Given("i", ENCODER, torch.ones(2, 2, 32, 32), torch.ones(32, 32, dtype=torch.bool)),
    MeanQK("q", *BASE, 32),
    Outputs("u", *BASE, 32, "resampled_output", 0),
    Distances("d", *BASE),
    Streamed("m", {"sinks": 4, "recent": 64}),
    ReusedBefore("l", {"of": 1}),
    RANKING,
    Rank("r", *AVERAGED, RankingSpec(learning_rate=1e-3), 0, SET),
    SCORED,
    FROZEN,
    *(replace(SCORED, methods=(name,)) for name in ("shapley", "gates")),
    replace(SCORED, methods=("gradient",), probe=FROZEN),
    PROBE,
    BASELINE,
    ANSWERS,
    Own("o", ANSWERS, ANSWERS, TEXT, (0, 1)),
    AGGREGATE,
)

NAMES = "what people call it"
TOKENS = "decides tokens, slots and labels, which the corpus's key covers"
COUNTS = ("train_rows", "validation_rows", "sample_seed", "mask_seed", "validation_slots")
ROWS = ("source.*", "columns.*", *COUNTS)
PROBED_HERE = "a probe is no head of the model's own"
OF_THE_STUDY = "the study, which is in the key, holds every task"
ITS_NAMES = {"encoder.name": NAMES, "encoder.revision": NAMES}
ITS_ENCODER = {**ITS_NAMES, "encoder.tokenizer_digest": TOKENS}
ITS_TASK = {"task.name": NAMES, **{f"task.{name}": TOKENS for name in ROWS}}
MATRICES = {
    **ITS_NAMES,
    "encoder.model_type": "in the encoder's digest, as the shape is",
    "encoder.layers": "in the encoder's digest, as in that of matrices that are given",
    "encoder.heads": "likewise",
    "encoder.width": "no matrix depends on it",
    "encoder.precision": "matrices are float32",
    "encoder.tokenizer_digest": "no text is read",
}
LEFT_OUT: dict[str, dict[str, str]] = {
    "*": {
        "name": NAMES,
        "*encoder.folder": "where its files lie; their digests are in the key",
        "*encoder.positions": "only checked against the slots",
        "*encoder.key_heads": "only told; the shape is in the encoder's digest",
        "*encoder.embeds_by": "refused where a task asks for embeddings, else of no meaning",
        "*encoder.tokenizer": "its digest is in the key",
        "task.own_probe": "a step that runs it has it as code",
    },
    "tokenise": {
        **ITS_NAMES,
        "encoder.digest": "no weight is read, only the tokenizer",
        "encoder.layers": "no weight is read",
        "encoder.heads": "no weight is read",
        "encoder.width": "no weight is read",
        "encoder.precision": "no weight is read",
        "task.name": NAMES,
        "task.source.*": "the fingerprint is of what it holds and of how it is read",
        "task.probe.*": "the probe comes later",
        "task.positive": "no score is taken here",
        "task.head": "text is read alike for any head",
    },
    "controls": MATRICES,
    "given": MATRICES,
    "derived": {"encoder.*": "that of the average, whose key is in the key"},
    "mean_qk": ITS_ENCODER,
    "outputs": ITS_ENCODER,
    "average": ITS_ENCODER,
    "relative": ITS_ENCODER,
    "rank": {
        **ITS_ENCODER,
        **ITS_TASK,
        "ranking.evaluations": "no set of heads is valued",
        "ranking.control": "decides on steps; whether labels are shuffled is in the key",
        "ranking.seeds": "each step trains with one of them, which is in the key",
        "task.metric": "λ is trained and not scored; what it is trained on is in the key",
        "task.positive": "λ is trained and not scored",
    },
    "scores": {
        **ITS_ENCODER,
        **ITS_TASK,
        "ranking.seeds": "each step scores with one of them, which is in the key",
        "ranking.until_stable": "no method reads it",
        "ranking.control": "of λ alone",
    },
    "frozen_probe": {
        **ITS_ENCODER,
        **ITS_TASK,
        "task.head": PROBED_HERE,
        "task.positive": "no score is taken here",
    },
    "probe": {**ITS_ENCODER, **ITS_TASK, "task.head": PROBED_HERE},
    "baseline": {**ITS_ENCODER, **ITS_TASK, "task.head": PROBED_HERE},
    "answers": {
        **ITS_ENCODER,
        **ITS_TASK,
        "task.labels": TOKENS,
        "task.metric": "answers are scored later; whether they are embeddings is in the key",
        "task.positive": "answers are scored later",
        "task.probe.*": "nothing is trained",
        "task.head": "only the model's own head answers",
    },
    "own": {
        **ITS_TASK,
        "task.slots": TOKENS,
        "task.probe.*": "nothing is trained",
        "task.head": "only the model's own head is scored",
    },
    "aggregate": {
        "study.execution.*": "changes no result: tests/probes/test_execution.py",
        "study_parts.0.encoder.name": "only in messages",
        "study_parts.0.encoder.revision": "only in messages",
        "study_parts.0.encoder.digest": "checked against the steps, whose keys are in the key",
        "study_parts.0.encoder.model_type": "the steps' keys hold it",
        "study_parts.0.encoder.layers": "in the constants",
        "study_parts.0.encoder.heads": "in the constants",
        "study_parts.0.encoder.width": "not read",
        "study_parts.0.encoder.precision": "in the constants",
        "invocation": "says which run wrote the report",
        **{
            f"study_parts.0.task.{name}": OF_THE_STUDY
            for name in (*ROWS, "labels", "positive", "probe.*", "own_probe", "head")
        },
    },
    "streaming": {},
    "reused": {},
}


def changes(value: Any, annotation: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """``value`` with one thing in it changed, for each thing in it; and the path of that thing."""
    if isinstance(value, Step) and path:
        another = replace(value)
        vars(another)["key"] = "another"  # What is in its key is a test of its own.
        yield path, another
    elif is_dataclass(value):
        hints = get_type_hints(type(value))
        for field in fields(value):
            inner = getattr(value, field.name)
            for below, changed in changes(inner, hints[field.name], f"{path}.{field.name}"):
                yield below, replace(value, **{field.name: changed})
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            for below, changed in changes(getattr(value, name), field.annotation, f"{path}.{name}"):
                yield below, value.model_copy(update={name: changed})
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield f"{path}.{name}", {other(name, None): inner}
            for below, changed in changes(inner, None, f"{path}.{name}"):
                yield below, {**value, name: changed}
    elif (
        isinstance(value, tuple)
        and value
        and (is_dataclass(value[0]) or isinstance(value[0], BaseModel))
    ):
        for below, changed in changes(value[0], None, f"{path}.0"):
            yield below, (changed, *value[1:])
    elif not (get_origin(annotation) is Literal and len(get_args(annotation)) == 1):
        yield path, other(value, annotation)


def other(value: Any, annotation: Any) -> Any:
    """Another value that the field may have."""
    match value:
        case None if annotation is Any:
            return "other"
        case None:
            kind = next(kind for kind in get_args(annotation) if kind is not type(None))
            while get_origin(kind) is Annotated:
                kind = get_args(kind)[0]
            if get_origin(kind) is Literal:
                return get_args(kind)[0]
            others = {int: 7, float: 0.125, str: "other", tuple: ("other",), OwnCode: OwnCode(len)}
            others[FrozenProbe] = FROZEN
            return others[get_origin(kind) or kind]
        case Cell():
            return replace(value, fraction=0.25)
        case bool():
            return not value
        case int() | float():
            return value * 2 + 2
        case str() if get_origin(annotation) is Literal:
            return next(name for name in get_args(annotation) if name != value)
        case str():
            return f"other-{value}"
        case torch.Tensor():
            return value ^ True if value.dtype == torch.bool else value + 1
        case Path():
            return value.with_name("test_store.py")
        case (str() as first, *rest):
            return (f"other-{first}", *rest)
        case tuple():
            return (*value, value[0])
    raise AssertionError(f"no other value is known for {value!r} of {annotation}: give one")


def left_out(stage: str, path: str) -> bool:
    """Whether the list says that the key does not hold what lies at the path."""
    return any(fnmatchcase(path, pattern) for part in ("*", stage) for pattern in LEFT_OUT[part])


def key_changes(stage: str) -> dict[str, bool]:
    """Path → whether another value there gives another key, in any example of the stage."""
    found: dict[str, bool] = {}
    for step in EXAMPLES:
        if step.stage == stage:
            for path, changed in changes(step, None):
                name = path.removeprefix(".")
                found[name] = found.get(name, False) or changed.key != step.key
    return found


def test_a_fingerprint_is_of_everything_that_decides_how_files_are_read(tmp_path: Path) -> None:
    for name in ("train.jsonl", "validation.jsonl", "test_store.py"):
        (tmp_path / name).write_text(f"content of {name}")
    source = FilesSource(
        kind="files", train=tmp_path / "train.jsonl", validation=tmp_path / "validation.jsonl"
    )
    found = {path: fingerprint(changed) for path, changed in changes(source, None)}
    assert found.keys() == {".train", ".validation", ".format", ".header"}
    assert len({fingerprint(source), *found.values()}) == 5


STAGES = sorted({step.stage for step in EXAMPLES})


def stages(kind: type[Step]) -> Iterator[type[Step]]:
    """The classes below ``kind`` that are not abstract."""
    for stage in kind.__subclasses__():
        yield from stages(stage) if isabstract(stage) else (stage,)


def test_every_stage_has_an_example() -> None:
    ours = {kind for kind in stages(Step) if kind.__module__.startswith(("papa.", "tasks."))}
    assert {type(step) for step in EXAMPLES} == ours
    assert LEFT_OUT.keys() == {"*", *STAGES}


@pytest.fixture(autouse=True)
def another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("distance", "gradient", "shapley", "gates"):
        monkeypatch.setitem(HEAD_SCORES, f"other-{name}", HEAD_SCORES[name])


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_is_given_is_in_its_key_or_left_out_for_a_reason(stage: str) -> None:
    found = key_changes(stage)
    assert any(found.values()), "some fields are walked, and change the key"
    missing = [path for path, changed in found.items() if not changed and not left_out(stage, path)]
    assert not missing, "neither in the key nor left out for a reason"
    both = [path for path, changed in found.items() if changed and left_out(stage, path)]
    assert not both, "in the key, and the list says that it is not"


def test_the_list_holds_nothing_that_is_no_longer_there() -> None:
    for part, patterns in LEFT_OUT.items():
        paths = [path for stage in STAGES if part in ("*", stage) for path in key_changes(stage)]
        for pattern in patterns:
            assert any(fnmatchcase(path, pattern) for path in paths), f"{part}: {pattern}"


def test_a_value_outside_the_key_is_found() -> None:
    """The negative control: a stage that forgets one of its fields."""

    class Forgetful(Probe):
        def spec(self) -> dict[str, Any]:
            return {name: value for name, value in super().spec().items() if name != "seeds"}

    step = Forgetful("p", *AVERAGED, "lambda", 2, {}, *PROBED_SEEDS)
    assert "seeds" in {
        path.removeprefix(".") for path, changed in changes(step, None) if changed.key == step.key
    }
