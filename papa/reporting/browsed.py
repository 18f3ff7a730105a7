"""The heads of one encoder on one task, as the page lets a reader browse them."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas

from papa.reporting.certainty import certainty
from papa.reporting.figures.chart import csv_address
from papa.reporting.figures.heatmaps import HeatMaps
from papa.reporting.heads import NO_PATTERN, HeadsOfEncoder
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
        heads = self.heads.matrices.shape[1]
        written = [self._head(row) for row in self.rows()]
        return [written[start : start + heads] for start in range(0, len(written), heads)]

    @property
    def first_score(self) -> str:
        """The name of the score that tiles show; "" without any."""
        return next((score.name for score in self.heads.scores()), "")

    def _head(self, row: list[str]) -> dict[str, Any]:
        facts = dict(zip(self.headings(), row, strict=True))
        layer, head = int(facts.pop("Layer")), int(facts.pop("Head"))
        image = base64.b64encode(self.maps.png(layer, head)).decode()
        score = facts[self.first_score].partition(" ")[0] if self.first_score else ""
        return {
            "layer": layer,
            "head": head,
            "image": f"data:image/png;base64,{image}",
            "score": score,
            "short": re.sub(r"^(-?)0\.", r"\1.", score),
            "pattern": facts["Pattern"],
            "plain": facts["Pattern"] == NO_PATTERN,
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
        return list(self._columns)

    def rows(self) -> list[list[str]]:
        """The table of heads, written out."""
        return [list(row) for row in zip(*self._columns.values(), strict=True)]

    @cached_property
    def _columns(self) -> dict[str, list[str]]:
        """By heading: place, scores, each with its interval, pattern, and what orders say."""
        table = {name: [str(value) for value in column] for name, column in self.table.items()}
        of_orders = [name for name in table if name.startswith(("place, ", "constant at, "))]
        return {
            **{name.capitalize(): table[name] for name in ("layer", "head")},
            **{score.name: score.written() for score in self.heads.scores()},
            "Pattern": table["pattern"],
            **{name[0].upper() + name[1:]: table[name] for name in of_orders},
        }
