"""The values that keys of a specification may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticKnownError

from papa.errors import shown
from papa.spec.kinds import CONTROLS, DERIVED, OF_DECODERS
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import HEAD_ORDERS, REVERSED, scores_in

OPTIMAL, RESAMPLED, REUSED = "optimal_output", "resampled_output", "reused"
OUTPUTS: dict[str, str] = {
    "mean_output": "papa.attention.outputs:mean_output",
    "mean_output_by_slot": "papa.attention.outputs:mean_output_by_slot",
    RESAMPLED: "papa.attention.outputs:resampled_outputs",
    OPTIMAL: "papa.attention.outputs:mean_output",
}
"""Constant outputs, and what makes each from an encoder and a split of text, ``batch_tokens`` at a
time; the optimal one starts from it, the resampled one is drawn by ``seed``."""
OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""


class Frozen(BaseModel):
    """A specification that cannot change and refuses keys it does not know; a field's docstring
    describes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Precision = Literal["float32", "bfloat16"]
PrecisionChoice = Literal["float32", "bfloat16", "auto"]


def listed(values: Any) -> str:
    """Names as a message lists them."""
    return ", ".join(map(str, values))


def refuse_unknown(value: object, names: Iterable[str]) -> None:
    """Refuses what a table does not name at the time, as pydantic refuses what a ``Literal`` does
    not name.
    """
    *most, last = known = list(names)
    if value not in known:
        raise PydanticKnownError(
            "literal_error", {"expected": f"{listed(map(repr, most))} or {last!r}"}
        )


def constants_kinds() -> tuple[str, ...]:
    """The kinds of constants that a study may name."""
    return ("average", *CONTROLS, *DERIVED, "mean_qk", *OUTPUTS, *OF_DECODERS, REUSED, "trained")


def _known_constants(value: object) -> object:
    refuse_unknown(value, constants_kinds())
    return value


def _known_order(value: object) -> object:
    if not isinstance(value, str) or scores_in(value) is None:
        method = value.removeprefix(REVERSED) if isinstance(value, str) else value
        refuse_unknown(method, (*HEAD_ORDERS, *HEAD_SCORES))
    return "lambda_reversed" if value == f"{REVERSED}lambda" else value


ConstantsKind = Annotated[str, BeforeValidator(_known_constants)]
Order = Annotated[str, BeforeValidator(_known_order)]


def no_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    labels = [getattr(value, "label", None) or getattr(value, "name", value) for value in values]
    repeated = [label for position, label in enumerate(labels) if label in labels[:position]]
    if repeated:
        raise ValueError(f"{shown(repeated[0])} is listed twice")
    return values
