"""Model types whose heads can be replaced in place, as tests of three laws found them.

``architectures.csv`` is written by ``docs/generators/architectures.py``; nothing else edits it.
"""

import csv
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

TABLE = Path(__file__).with_name("architectures.csv")


class Outcome(StrEnum):
    """What the laws say of a model type, or of one of its parts."""

    PASSES = "passes"
    PARTLY = "passes where it can be asked"
    REFUSED = "refused"
    OUTSIDE = "outside the interface"
    UNTESTED = "untested"
    FAILS = "fails"


@dataclass(frozen=True)
class Architecture:
    """A model type, or one part of it.

    Attributes:
        model_type: as in ``config.model_type``.
        part: the name that ``part=`` takes; "" where the model has one part.
        outcome: what the laws say.
        note: the reason, where not all laws hold.
    """

    model_type: str
    part: str
    outcome: Outcome
    note: str


def read_architectures() -> list[Architecture]:
    """Return the rows of the table."""
    with TABLE.open(newline="") as file:
        return [
            Architecture(row["model_type"], row["part"], Outcome(row["outcome"]), row["note"])
            for row in csv.DictReader(file)
        ]
