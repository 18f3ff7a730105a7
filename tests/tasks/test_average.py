"""The average of a native head in shards: the same bits for any division among workers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from papa.heads.constants import ConstantMatrices
from papa.models.native import class_of_native_head, load_native_model
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.store import Store
from papa.tasks.average import publish_average, sum_shards
from papa.tasks.context import Context
from tests.finished import described, score_study
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import LABELS, SHAPE, write_splits

pytestmark = pytest.mark.unchecked
ROWS = 24
TASK = {"kind": "text", "head": "native", "columns": {"text": "text"}, "metric": "agreement"}


def test_any_division_of_shards_gives_the_same_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig.from_dict(SHAPE | LABELS))
    folder = with_tokenizer(model.eval(), tmp_path / "model")
    execution = {"shard_rows": ROWS // 4}
    data = write_splits(tmp_path, ROWS)
    document = described(folder, TASK, keep=[0], execution=execution)
    study = score_study(document, data, tmp_path / "store")
    (step,) = (step for step in study.pipeline.steps if step.stage.name == "average")
    reference = step["encoder"]
    model = load_native_model(reference, class_of_native_head(step["task"], reference))
    context = Context((step,), study.store, ExecutionSpec(), ignore_progress, model)

    def published(name: str, *calls: Sequence[int]) -> np.ndarray:
        total, *others = (sum_shards(context, shards)[0] for shards in calls)
        for sums in others:
            total.merge(sums)
        store = Store(tmp_path / name)
        store.make()
        publish_average(replace(context, store=store), total, metadata={})
        return ConstantMatrices.load(step.folder(store)).matrices.numpy()

    whole = published("whole", range(4))
    np.testing.assert_array_equal(published("divided", [3], [0, 2], [1]), whole)
    stored = ConstantMatrices.load(study.artifacts[step]).matrices.numpy()
    np.testing.assert_array_equal(stored, whole)
    assert not np.array_equal(published("part", [3], [0, 2]), whole), "negative control"
