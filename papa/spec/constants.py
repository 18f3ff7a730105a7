"""The constants of a study: a kind, its text and its parameters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from papa.spec.kinds import PARAMETERS, parameters_of
from papa.spec.task import TaskSpec
from papa.spec.values import OPTIMAL, ConstantsKind, Frozen, NotNegative, Positive


class ConstantsSpec(Frozen):
    """A kind of constant matrices and, for ``average``, the text it is taken over."""

    kind: ConstantsKind
    """average; a control: identity, toeplitz, zeros (paper, Section 5.2), previous, next, local,
    fibonacci; what is made of the average: low_rank, relative; mean_qk; trained; or a constant
    output: mean_output, mean_output_by_slot, resampled_output, optimal_output (docs/method.md);
    for comparison, reused: the attention of the same head of the layer before; of decoders,
    streaming: their own attention to the first and the last tokens."""
    corpus: TaskSpec | None = None
    """average: take it over this task's training text instead of the study's own (paper, Section
    5.3, Table 2)."""
    rows: Positive | None = None
    """average: take it over a sample of this many training rows, whatever the task's probe is
    trained on; null takes all of the task's. A smaller sample is part of a larger one."""
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
    def _parameters_of_the_kind(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        given = {name: value for name, value in values.items() if value is not None}
        return {**values, **parameters_of(values.get("kind")), **given}

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
        return {name: getattr(self, name) for name in parameters_of(self.kind)}

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        parts: list[Any] = list(self.parameters.values())
        if self.corpus:
            parts.append(self.corpus.name)
        if self.rows:
            parts.append(f"{self.rows} rows")
        if self.kind == "trained" and self.start != "toeplitz":
            parts.append(self.start)
        return ":".join(map(str, (self.kind, *parts)))
