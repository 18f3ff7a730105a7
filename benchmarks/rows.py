"""What a row of the table is, before and after it is measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import date

import torch

from benchmarks.timing import Comparison, seconds

BUSY = 0.9
"""Below this share of the highest rate of matrix products seen, the machine was busy all along."""


class LeftOut(Exception):
    """This machine cannot do the work of a row; the message says why."""


@dataclass(frozen=True)
class Row:
    """A line of the table that is not measured yet: the work, the word of the group that asks for
    it, the least ratio that is asked for, and what runs both ways or raises ``LeftOut``. What takes
    long runs on request alone.
    """

    group: str
    name: str
    target: float
    measure: Callable[[], Comparison]
    on_request: bool = False


@dataclass(frozen=True)
class Measured(Comparison):
    """A line of the table, with GFLOP/s of a matrix product before and after as ``peaks``, the
    seconds that it took as ``spent``, and when and on what it was measured.
    """

    name: str = ""
    target: float = 0.0
    peaks: tuple[float, float] = (0.0, 0.0)
    spent: float = 0.0
    date: str = ""
    torch: str = ""
    python: str = ""
    cores: int = 0
    threads: int = 0

    @property
    def verdict(self) -> str:
        """Whether the target is reached; undecided where the interval holds it."""
        if self.low >= self.target:
            return "reached"
        return "missed" if self.high < self.target else "undecided"

    def busy(self, highest: float) -> bool:
        """Whether the machine was busy before and after, by the highest rate of matrix products it
        ever showed.
        """
        return max(self.peaks) < BUSY * highest


def measured(row: Row) -> Measured:
    """Measure a row, and the machine's own speed before and after."""
    before, found = matrix_product_rate(), list[Comparison]()
    spent = seconds(lambda: found.append(row.measure()))
    return Measured(
        **asdict(found[0]),
        name=row.name,
        target=row.target,
        peaks=(before / 1e9, matrix_product_rate() / 1e9),
        spent=spent,
        date=date.today().isoformat(),
        torch=torch.__version__,
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
    )


def selected(rows: Iterable[Row], words: Iterable[str]) -> list[Row]:
    """The rows asked for by their group, or else by a part of their name; without words all but
    those on request.

    Raises:
        ValueError: no row has the word.
    """
    rows, words = list(rows), [word.strip().lower().replace("lambda", "λ") for word in words]
    groups = list(dict.fromkeys(row.group for row in rows))
    for word in words:
        if not any(word == row.group or word in row.name.lower() for row in rows):
            raise ValueError(
                f"no row is called '{word}': ask for {', '.join(groups)}, or a part of a row's name"
            )

    def asked(row: Row) -> bool:
        return any(
            word == row.group if word in groups else word in row.name.lower() for word in words
        )

    return [row for row in rows if (asked(row) if words else not row.on_request)]


SIZE = 1024


def matrix_product_rate(repeats: int = 25) -> float:
    """FLOP/s of a square float32 matrix product: of the fastest of some."""
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    return 2 * SIZE**3 / min(seconds(lambda: torch.matmul(left, right)) for _ in range(repeats))
