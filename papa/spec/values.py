"""The values that keys of a specification may have."""

from __future__ import annotations

from collections.abc import Iterable
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
