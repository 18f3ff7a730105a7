"""The heads of one encoder on one task, as the page lets a reader browse them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pandas

from papa.reporting.certainty import certainty
from papa.reporting.figures.chart import csv_address
from papa.reporting.figures.heatmaps import HeatMaps
from papa.reporting.heads import NO_PATTERN, HeadsOfEncoder
from papa.reporting.wording import NOTHING
from papa.spec import StudySpec


@dataclass(frozen=True)
class Browsed:
    """The matrices of one encoder on one task, as the template and the page's script take them."""

    heads: HeadsOfEncoder
    maps: HeatMaps
    study: StudySpec

    @property
    def title(self) -> str:
        return f"{self.heads.encoder} · {self.heads.task}"

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.heads.encoder}-{self.heads.task}"

    @property
    def table(self) -> pandas.DataFrame:
        return self.heads.table(self.study.fractions)

    @property
    def certainty(self) -> str:
        """What is known of λ and its order; "" where none was trained."""
        return certainty(self.heads.lambdas, self.study.fractions) if self.heads.lambdas else ""

    @property
    def joined_slots(self) -> int:
        """How many slots one row stands for at most."""
        return max((end - start for start, end in self.maps.ranges), default=1)

    @property
    def marks(self) -> list[float]:
        """Where [CLS] and [SEP] are, in percent of the image's side."""
        return [100 * (row + 0.5) / len(self.maps.ranges) for row in self.maps.special]

    @property
    def csv(self) -> str:
        """The table of heads as an address that a link downloads."""
        return csv_address(self.table)

    def layers(self) -> list[list[dict[str, Any]]]:
        """Layer by layer, what is shown of each head."""
        rows = self.table.to_dict("records")
        heads = self.heads.matrices.shape[1]
        written = [self._head(row) for row in rows]
        return [written[start : start + heads] for start in range(0, len(written), heads)]

    def _head(self, row: dict[str, Any]) -> dict[str, Any]:
        layer, head, weight = row["layer"], row["head"], row["lambda"]
        image = base64.b64encode(self.maps.png(layer, head)).decode()
        facts = {
            "λ": _written(weight),
            "95 % over seeds": f"{_written(row['lambda from'])} to {_written(row['lambda to'])}",
            "Pattern": row["pattern"],
            **{
                _heading(name): str(value)
                for name, value in row.items()
                if name.startswith(("place", "constant"))
            },
        }
        return {
            "layer": layer,
            "head": head,
            "image": f"data:image/png;base64,{image}",
            "lambda": facts["λ"],
            "pattern": row["pattern"],
            "plain": row["pattern"] == NO_PATTERN,
            "facts": facts,
        }

    def document(self) -> dict[str, Any]:
        """What the script needs to show a head's matrix in large, but for the images."""
        facts = [head["facts"] for layer in self.layers() for head in layer]
        return {
            "title": self.title,
            "name": self.name,
            "labels": self.maps.labels,
            "special": list(self.maps.special),
            "largest": [float(value) for value in self.maps.largest.flatten()],
            "facts": facts,
            "scores": {
                score.name: [float(value) for value in score.values.flatten()]
                for score in self.heads.scores()
            },
        }

    def headings(self) -> list[str]:
        """Of the table of heads."""
        return [_heading(name) for name in self.table.columns]

    def rows(self) -> list[list[str]]:
        """The table of heads, written out."""
        weights = [name for name in self.table if name.startswith("lambda")]
        written = self.table.assign(**{name: self.table[name].map(_written) for name in weights})
        return [[str(value) for value in row] for row in written.itertuples(index=False)]


def _written(weight: float) -> str:
    """λ, which is near .5 after little training."""
    return NOTHING if pandas.isna(weight) else f"{weight:.4f}"


def _heading(column: str) -> str:
    return (
        column.replace("lambda", "λ")
        if column.startswith("lambda")
        else column[0].upper() + column[1:]
    )
