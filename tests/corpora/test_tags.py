"""Entity tags: IOB1 and IOB2 say the same."""

from __future__ import annotations

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from papa.corpora.labels import to_iob2
from papa.errors import DataError

IOB1 = ["I-ORG", "O", "I-PER", "I-PER", "B-PER", "I-LOC", "O", "I-MISC"]
IOB2 = ["B-ORG", "O", "B-PER", "I-PER", "B-PER", "B-LOC", "O", "B-MISC"]


def test_iob1_becomes_iob2_with_the_same_entities() -> None:
    converted, changed = to_iob2([IOB1], "file")
    assert converted == [IOB2]
    assert changed == 4
    assert get_entities(converted[0]) == get_entities(IOB1)


def test_iob2_stays_as_it_is() -> None:
    assert to_iob2([IOB2, [], ["O"]], "file") == ([IOB2, [], ["O"]], 0)


@pytest.mark.parametrize("tag", ["S-LOC", "L-PER", "LOC", "B", "I-", "", "o"])
def test_other_schemes_are_named(tag: str) -> None:
    with pytest.raises(DataError, match=f"file: row 2 has the tag '{tag}', which is not IOB2"):
        to_iob2([["O"], ["O", tag]], "file")
