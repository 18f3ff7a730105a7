"""The constants of a study: a kind, which has a function (``module:name``), and its parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from papa.spec.data import Frozen, NotNegative, Positive, one_of
from papa.spec.task import TaskSpec

_AT = "papa.attention"
CONTROLS: dict[str, str] = {
    **{kind: f"{_AT}.kinds:{kind}" for kind in ("identity", "toeplitz", "zeros", "previous")},
    "next": f"{_AT}.kinds:next_slot",
    **{kind: f"{_AT}.kinds:{kind}" for kind in ("local", "fibonacci")},
}
"""What makes matrices from S; from L·H as well, where it asks for ``heads``."""
DERIVED: dict[str, str] = {kind: f"{_AT}.kinds:{kind}" for kind in ("low_rank", "relative")}
"""What makes matrices from the average."""
OPTIMAL, RESAMPLED, REUSED = "optimal_output", "resampled_output", "reused"
OUTPUTS: dict[str, str] = {
    "mean_output": f"{_AT}.outputs:mean_output",
    "mean_output_by_slot": f"{_AT}.outputs:mean_output_by_slot",
    RESAMPLED: f"{_AT}.outputs:resampled_outputs",
    OPTIMAL: f"{_AT}.outputs:mean_output",
}
"""What makes constant outputs from an encoder and a split of text; the optimal one starts there."""
OF_DECODERS = ("streaming",)
PARAMETERS: dict[str, dict[str, int]] = {
    "local": {"window": 2},
    "low_rank": {"rank": 4, "largest": 0},
    "streaming": {"sinks": 4, "recent": 64},
}
"""The keys of a kind, with their defaults."""


def constants_kinds() -> tuple[str, ...]:
    """The kinds of constants that a study may name."""
    return ("average", *CONTROLS, *DERIVED, "mean_qk", *OUTPUTS, *OF_DECODERS, REUSED, "trained")


ConstantsKind = Annotated[str, AfterValidator(lambda kind: one_of(constants_kinds(), kind))]


class ConstantsSpec(Frozen):
    """A kind of constant matrices and, for ``average``, the text it is taken over."""

    kind: ConstantsKind
    """What stands in attention's place: the average; a control such as identity, toeplitz or zeros
    (paper, Section 5.2); a trained one; a constant output (docs/method.md)."""
    corpus: TaskSpec | None = None
    """average: over this task's training text, not the study's (paper, Section 5.3, Table 2)."""
    rows: Positive | None = None
    """average: over so many training rows; null takes all. A larger sample holds a smaller one."""
    start: Literal["toeplitz", "average"] = "toeplitz"
    """trained: the matrices that training starts from."""
    window: Positive | None = None
    """local: how many slots to either side a token attends to; null takes 2."""
    rank: Positive | None = None
    """low_rank: the rank to which the average is approximated; null takes 4."""
    largest: NotNegative | None = None
    """low_rank: how many of the average's largest entries are kept as they are; null takes 0."""
    sinks: NotNegative | None = None
    """streaming: first tokens that every token sees; null takes 4."""
    recent: Positive | None = None
    """streaming: how many last tokens a token sees, itself among them; null takes 64."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        given = {name: value for name, value in values.items() if value is not None}
        return {**PARAMETERS.get(str(values.get("kind")), {}), **given}

    @model_validator(mode="after")
    def _nothing_of_other_kinds(self) -> ConstantsSpec:
        for kind, names in {**PARAMETERS, "average": ("corpus", "rows")}.items():
            for name in names:
                if kind != self.kind and getattr(self, name) is not None:
                    raise ValueError(f"{name} belongs to kind '{kind}', not '{self.kind}'")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether it is trained with the probe of each seed."""
        return self.kind in ("trained", OPTIMAL)

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the kind's own keys."""
        return {name: getattr(self, name) for name in PARAMETERS.get(self.kind, {})}

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        parts = [self.kind, *map(str, self.parameters.values())]
        parts += [self.corpus.name] if self.corpus else []
        parts += [f"{self.rows} rows"] if self.rows else []
        parts += [self.start] if self.kind == "trained" and self.start != "toeplitz" else []
        return ":".join(parts)
