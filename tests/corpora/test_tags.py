"""Entity tags: IOB1 and IOB2 say the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from papa.corpora.labels import LabelColumn, to_iob2
from papa.errors import DataError

IOB1 = ["I-ORG", "O", "I-PER", "I-PER", "B-PER", "I-LOC", "O", "I-MISC"]
IOB2 = ["B-ORG", "O", "B-PER", "I-PER", "B-PER", "B-LOC", "O", "B-MISC"]


def converted(*rows: list[str]) -> tuple[list[str], int]:
    row_of = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    tags = pa.array([tag for row in rows for tag in row], pa.string())
    side, changed = to_iob2(LabelColumn(tags, "file", "tags", row_of), None)
    return side.values.to_pylist(), changed


def test_iob1_becomes_iob2_with_the_same_entities() -> None:
    assert converted(IOB1) == (IOB2, 4)
    assert get_entities(IOB2) == get_entities(IOB1)


def test_iob2_stays_as_it_is() -> None:
    assert converted(IOB2, [], ["O"]) == ([*IOB2, "O"], 0)


def test_an_entity_ends_with_its_row() -> None:
    assert converted(["I-PER"], ["I-PER", "I-PER"]) == (["B-PER", "B-PER", "I-PER"], 2)


@pytest.mark.parametrize("tag", ["S-LOC", "L-PER", "LOC", "B", "I-", "", "o"])
def test_other_schemes_are_named(tag: str) -> None:
    with pytest.raises(DataError, match=f"file: row 2 has the tag '{tag}', which is not IOB2"):
        converted(["O"], ["O", tag])
