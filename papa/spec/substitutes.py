"""The substitutes: what can take a head's attention's place, an entry each.

Studies, ``papa.constants``, ``papa.ablated``, ``papa.fidelity``, ``papa.head_scores`` and
``papa.measure`` read this table alone. Functions are named, not imported: a study file is read
without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Origin = Literal["slots", "attention", "average", "outputs", "training"]


@dataclass(frozen=True)
class SubstituteEntry:
    """One substitute.

    Attributes:
        origin: What it is computed from. "slots": the number of slots alone. "attention": queries
            and keys of the same input, so it is not constant. "average": the average attention over
            a text. "outputs": what heads output over a text. "training": it is trained with the
            probe of each seed.
        function: ``module:name`` of what computes its matrices. From "slots": ``function(slots,
            **parameters)``, [S, S] for all heads; or with an argument ``heads``, [H, S, S]. From
            "average": ``function(averages, **parameters)``, [L, H, S, S]; "" is the average itself.
        rule: ``module:name`` of a ``papa.heads.substitutes.Substitute`` for inputs of any length,
            called with the parameters; "" where there is none.
        observer: ``module:name`` of what computes it from the passes of a model over a text
            (``papa.heads.observers``); "" where no text is needed.
        parameters: Its keys in a study, with their defaults.
        starts: Substitutes that training starts from, the default first.
        encoders: Whether studies of encoders may name it.
        decoders: Whether studies of decoders may name it.
        in_memory: Whether an in-memory model may have it.
        any_length: Whether validation texts may be longer than the texts that it is computed from.
        drawn: Whether each probe seed draws its own.
    """

    origin: Origin
    function: str = ""
    rule: str = ""
    observer: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    starts: tuple[str, ...] = ()
    encoders: bool = True
    decoders: bool = True
    in_memory: bool = True
    any_length: bool = False
    drawn: bool = False

    @property
    def is_by_distance(self) -> bool:
        """Whether native heads have it by the distance of tokens, for texts of any length."""
        return self.origin == "average" and self.any_length


_HEADS = "papa.heads"
SUBSTITUTES: dict[str, SubstituteEntry] = {
    "average": SubstituteEntry("average", observer=f"{_HEADS}.average:attention_averager"),
    "identity": SubstituteEntry("slots", f"{_HEADS}.kinds:identity"),
    "toeplitz": SubstituteEntry("slots", f"{_HEADS}.kinds:toeplitz"),
    "zeros": SubstituteEntry("slots", f"{_HEADS}.kinds:zeros", f"{_HEADS}.substitutes:Zeros"),
    "previous": SubstituteEntry("slots", f"{_HEADS}.kinds:previous"),
    # A decoder never attends to a later token.
    "next": SubstituteEntry("slots", f"{_HEADS}.kinds:next_slot", decoders=False),
    "first": SubstituteEntry("slots", f"{_HEADS}.kinds:first"),
    "local": SubstituteEntry("slots", f"{_HEADS}.kinds:local", parameters={"window": 2}),
    "fibonacci": SubstituteEntry("slots", f"{_HEADS}.kinds:fibonacci"),
    "low_rank": SubstituteEntry(
        "average", f"{_HEADS}.kinds:low_rank", parameters={"rank": 4, "largest": 0}, in_memory=False
    ),
    "relative": SubstituteEntry(
        "average",
        f"{_HEADS}.kinds:relative",
        observer=f"{_HEADS}.average:average_by_distance",
        any_length=True,
    ),
    "mean_output": SubstituteEntry(
        "outputs", observer=f"{_HEADS}.outputs:mean_outputs", decoders=False
    ),
    "mean_output_by_slot": SubstituteEntry(
        "outputs",
        observer=f"{_HEADS}.outputs:mean_outputs_by_slot",
        decoders=False,
        in_memory=False,
    ),
    "resampled_output": SubstituteEntry(
        "outputs", observer=f"{_HEADS}.resampling:drawn_outputs", decoders=False, drawn=True
    ),
    "optimal_output": SubstituteEntry(
        "training", starts=("mean_output",), decoders=False, in_memory=False
    ),
    "streaming": SubstituteEntry(
        "attention",
        rule=f"{_HEADS}.substitutes:Streaming",
        parameters={"sinks": 4, "recent": 64},
        encoders=False,
        any_length=True,
    ),
    "trained": SubstituteEntry("training", starts=("toeplitz", "average"), in_memory=False),
}
CUSTOM = SubstituteEntry("average")
"""The entry of matrices that a user of the library supplied, whatever tables call them."""


def entry_of(name: str) -> SubstituteEntry:
    """Return the entry of a substitute, by its name in a study or a table."""
    return SUBSTITUTES.get(name, CUSTOM)
