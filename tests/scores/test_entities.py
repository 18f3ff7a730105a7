"""Entities are those of seqeval's default mode."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from papa.scores.entities import entities_of

IOBES = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
ODD = ["O", "B", "I", "B-", ".", "I-A-B", "B-A-B", "X-PER"]
PARTS_OF_SPEECH = ["NOUN", "PRON", "PROPN", "ADP", "ADV", "ADJ", "AUX", "SYM", "X"]


@pytest.mark.parametrize("tags", [IOBES, ODD, PARTS_OF_SPEECH], ids=["iobes", "odd", "pos"])
@pytest.mark.filterwarnings("ignore:.* seems not to be NE tag")
def test_entities_are_those_of_seqeval(tags: list[str]) -> None:
    random = np.random.default_rng(0)
    for _ in range(500):
        sentence = random.choice(tags, size=random.integers(0, 12)).tolist()
        assert entities_of(sentence) == set(get_entities(sentence)), sentence
