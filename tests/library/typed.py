"""What a type checker says of the surface; ``make lint`` checks this file, no test runs it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import assert_type

from papa.reporting.figures.chart import Chart
from torch import Tensor

import papa
from papa.attention.replacement import EntryCounts

encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2")
assert_type(encoder, papa.TextEncoder)
assert_type(encoder.layers, int)

constants = papa.average(encoder, ["a text"])
assert_type(constants, papa.ConstantMatrices)
assert_type(constants.matrices, Tensor)
assert_type(papa.constants("zeros", encoder), papa.ConstantMatrices)
assert_type(papa.features(encoder, ["a text"]), list[Tensor])

lambdas = papa.train_lambda(encoder, constants, "reviews", papa.Task())
assert_type(lambdas, papa.TrainedLambda)
heads = papa.constant_heads(lambdas, 0.5)
assert_type(heads, tuple[tuple[int, int], ...])
replaced: AbstractContextManager[EntryCounts] = papa.replaced(encoder, constants, heads)
with replaced as entries:
    assert_type(entries.unseen_share, float)

assert_type(papa.score_heads(encoder, constants, "reviews").evaluations, int)
scores: Sequence[papa.SeedScore] = papa.fit_probe(encoder, "reviews")
assert_type(scores[0].score, float)

found = papa.measure(encoder, "reviews")
assert_type(found, papa.Measurement)
assert_type(found.table, str)
assert_type(found.plot(), Chart)
assert_type(found.answers, list[str])

error: Exception = papa.PapaError("a sentence")
assert_type(papa.load_exported("folder"), papa.ExportedEncoder)
