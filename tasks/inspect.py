"""What a study's average matrices look like: head patterns and examples (paper, Section 5.1, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papa.artifacts import ArtifactReference
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.spec import TaskSpec


@dataclass(frozen=True)
class Averaged:
    """The average of one encoder over one task's training text.

    Attributes:
        model: the encoder's name in tables.
        encoder: whose attention.
        task: its text and layout.
        constants: the artifact of stage ``average``.
    """

    model: str
    encoder: EncoderReference
    task: TaskSpec
    constants: ArtifactReference

    def read(self) -> dict[str, Any]:
        """What of it, besides the artifact, decides what is found."""
        task = self.task.model_dump(mode="json", include={"name", "kind", "slots"})
        return {"model": self.model, "task": task, "tokenizer": self.encoder.tokenizer_digest}


def inspected(averages: Sequence[Averaged]) -> dict[str, Any]:
    """The report's extras on matrices: shares of patterned heads for all, example heads of the first."""
    import pandas

    from papa.attention.constants import ConstantMatrices
    from papa.attention.patterns import head_patterns, special_slots
    from papa.corpora.specials import specials_of
    from papa.reporting.heads import example_heads

    rows: list[dict[str, Any]] = []
    examples: list[Any] = []
    for one in averages:
        constants = ConstantMatrices.load(one.constants.folder, encoder=one.encoder, slots=one.task.slots)
        double = one.task.kind == "pair" and specials_of(load_tokenizer(one.encoder)).between == 2
        special = special_slots(one.task.kind, one.task.slots, double_separator=double)
        assert constants.counts is not None
        patterns = head_patterns(constants.matrices, constants.counts, special)
        rows.append({"Model": one.model, "Task": one.task.name, **patterns.summary()})
        examples = examples or example_heads(constants.matrices, constants.seen, patterns)
    return {"matrices": examples, "patterns": pandas.DataFrame(rows)} if rows else {}
