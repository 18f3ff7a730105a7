"""What the report tells of average matrices, from the artifact that the stage publishes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from papa.attention.average import AttentionAverager
from papa.attention.constants import ConstantMatrices
from papa.encoders.reference import EncoderReference
from papa.reporting.heads import Average
from papa.spec.study import HeadScores
from papa.study.aggregate import heads_table
from papa.study.results import StudyPart
from tests.study.test_keys import CONSTANTS, STUDY, TEXT

SLOTS, ENCODER = (
    32,
    EncoderReference("name", None, "/folder", "weights", "words", "bert", 1, 1, 12, 64),
)


def test_rows_weigh_as_often_as_the_average_saw_them(tmp_path: Path) -> None:
    """90 inputs with 5 tokens look at themselves, 10 inputs with 30 tokens look at [CLS] from slot
    6 on.
    """
    averager = AttentionAverager(1, 1, SLOTS)
    for inputs, length in ((90, 5), (10, 30)):
        slots = torch.tensor([*range(length + 1), SLOTS - 1])
        own = torch.eye(len(slots))
        own[6:-1] = torch.eye(len(slots))[0]
        attention = own.expand(inputs, 1, -1, -1)
        averager.update(0, attention, slots, torch.ones(inputs, len(slots), dtype=torch.bool))
    average = averager.result().average()
    average.save(tmp_path / "average", ENCODER, {})
    loaded = ConstantMatrices.load(tmp_path / "average")
    assert loaded.counts is not None
    assert loaded.counts.diagonal()[[0, 5, 6, 30, 31]].tolist() == [100, 100, 10, 10, 100]
    assert torch.equal(loaded.seen, loaded.counts > 0)

    named = HeadScores(name="mine/head", values=((0.7,),))
    study = STUDY.model_copy(update={"scores": (named,)})
    part = StudyPart("label", ENCODER, TEXT, {}, {"average": CONSTANTS}, {}, None)
    of_head = heads_table([part], {}, study)
    assert of_head[["method", "score"]].values.tolist() == [["scores:mine/head", 0.7]]
    found = Average("label", "task", loaded.matrices, loaded.counts, (0, 31)).patterns.summary()
    # Slots 1 to 5 stand for 100 inputs each, slots 6 to 30 for 10.
    assert found["[CLS] weight"] == pytest.approx(25 * 10 / (25 * 10 + 5 * 100))
    assert found["diagonal heads"] == 1, (
        "two thirds of the rows that were met; a sixth of the slots"
    )
