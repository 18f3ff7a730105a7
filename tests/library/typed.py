"""What a type checker says of the surface; ``make lint`` checks this file, no test runs it."""

from contextlib import AbstractContextManager
from typing import assert_type

import pandas
from torch import Tensor

import papa
from papa.heads.constants import EntryCounts
from papa.library.encoder import Encoder
from papa.library.matrices import ConstantMatrices
from papa.reporting.figures import Figure

encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2")
assert_type(encoder, Encoder)

constants = papa.average(encoder, ["a text"])
assert_type(constants, ConstantMatrices)
assert_type(papa.constants(encoder, "zeros"), ConstantMatrices)
assert_type(papa.features(encoder, ["a text"]), list[Tensor])

scores = papa.head_scores(encoder, "reviews", task=papa.Task())
assert_type(scores, pandas.DataFrame)
heads = papa.constant_heads(scores, keep=0.5)
assert_type(heads, tuple[tuple[int, int], ...])
replaced: AbstractContextManager[EntryCounts] = papa.replaced(encoder, heads, substitute=constants)
with replaced as entries:
    assert_type(entries.unseen_share, float)

measurement = papa.measure(encoder, "reviews")
assert_type(measurement, papa.Measurement)
assert_type(measurement.plot(), Figure)
assert_type(measurement.answers, list[str])

error: Exception = papa.PapaError("a sentence")
