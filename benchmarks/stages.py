"""The stages of a study, ours against the plain way: averaging, features, λ, probing and
the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch

from benchmarks.plain import plain_average, plain_features, plain_probing, plain_ranking
from benchmarks.rows import LeftOut, Row
from benchmarks.setting import CORPORA, TITLES, Setting, encoder, sample
from benchmarks.timing import Comparison, Part, in_turn
from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import Head, replaced
from papa.errors import SpecError
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import extract_features
from papa.ranking.learned import train_lambda
from papa.spec import ExecutionSpec, FeaturesSpec, Precision, RankingSpec
from papa.spec.cells import constant_heads
from papa.spec.orders import head_order

SEEDS = (0, 1, 2)
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
LAMBDA_EPOCHS = 2
HALF = ", bfloat16 against float32"


def average(setting: Setting, precision: Precision = "float32") -> ConstantMatrices:
    """Our average over the training text."""
    model, slots = encoder(precision), setting.task.slots
    batch_tokens = model.tokens_per_batch(None)
    return average_split(
        model, setting.corpus.split("train"), slots=slots, batch_tokens=batch_tokens
    ).average()


def features(setting: Setting, precision: Precision = "float32", *, folder: Path) -> None:
    """Our features of the training text."""
    path, model = folder / f"features-{time.monotonic_ns()}", encoder(precision)
    batch_tokens = model.tokens_per_batch(None)
    extract_features(
        model, setting.corpus.split("train"), path, batch_tokens=batch_tokens, dtype="float32"
    )
    path.unlink()


def ranking(
    setting: Setting, constants: ConstantMatrices, precision: Precision = "float32"
) -> None:
    """Our λ training, one epoch."""
    train_lambda(encoder(precision), constants, setting.corpus, setting.task, RankingSpec(epochs=1))


def probing(
    setting: Setting,
    folder: Path,
    constants: ConstantMatrices | None = None,
    heads: Sequence[Head] = (),
) -> None:
    """Our cell: features once, all seeds, all epochs."""
    changed = nullcontext() if constants is None else replaced(encoder(), constants, heads)
    with changed:
        evaluate_cell(
            encoder(),
            setting.corpus,
            setting.task,
            SEEDS,
            features=FeaturesSpec(),
            execution=ExecutionSpec(),
            scratch=folder,
        )


def against_plain(
    name: str,
    folder: Path,
    precision: Precision,
    ours: Callable[..., object],
    plain: Callable[[Setting], Part],
) -> Comparison:
    """A pass of the encoder over the training text."""
    check_hardware(precision)
    setting = sample(name, folder)
    return in_turn(partial(ours, setting, precision), plain(setting))


def ranking_against_plain(folder: Path, precision: Precision) -> Comparison:
    """λ for an epoch of CoLA, both ways on one thread: minibatches as small as these stay on one
    worker.
    """
    check_hardware(precision)
    cola = sample("cola", folder)
    constants, threads = average(cola), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return in_turn(
            partial(ranking, cola, constants, precision), plain_ranking(cola, constants.matrices)
        )
    finally:
        torch.set_num_threads(threads)


def check_hardware(precision: Precision) -> None:
    """Leave the row out where PAPA refuses the precision on this machine."""
    try:
        encoder(precision)
    except SpecError as refused:
        raise LeftOut(str(refused)) from None


def probing_against_plain(folder: Path) -> Comparison:
    """A cell of CoLA."""
    cola = sample("cola", folder)
    work, times = plain_probing(cola)
    return in_turn(
        partial(probing, cola, folder), Part(work, times * cola.task.probe.epochs * len(SEEDS))
    )


def whole_study(name: str, folder: Path) -> Comparison:
    """Average, two epochs of λ, and five fractions × seeds × epochs."""
    setting, model = sample(name, folder), encoder()
    epochs = setting.task.probe.epochs * len(SEEDS)

    def ours() -> None:
        constants = average(setting)
        lambdas = train_lambda(
            model, constants, setting.corpus, setting.task, RankingSpec(epochs=LAMBDA_EPOCHS)
        )
        order = head_order("lambda", lambdas[-1], model.layers, model.heads)
        for fraction in FRACTIONS:
            heads = constant_heads(order, fraction)
            probing(setting, folder, constants if heads else None, heads)

    matrices = average(setting).matrices
    order = head_order("first_to_last", None, model.layers, model.heads)
    ranked = plain_ranking(setting, matrices)
    parts = [plain_average(setting), ranked._replace(times=ranked.times * LAMBDA_EPOCHS)]
    for fraction in FRACTIONS:
        work, times = plain_probing(setting, matrices, constant_heads(order, fraction))
        parts.append(Part(work, times * epochs))
    return in_turn(ours, *parts)


def stage_rows(folder: Path) -> Iterator[Row]:
    """Averaging and features on three corpora; λ and probing on CoLA; the whole study on CoLA and
    on WNUT.
    """
    passes = (
        ("averaging", average, plain_average, (5.0, 7.0, 5.0), (7.5, 10.5)),
        ("features", partial(features, folder=folder), plain_features, (4.5, 5.5, 3.5), (6.5, 8.0)),
    )
    for stage, ours, plain, targets, half_targets in passes:
        for (name, title), target in zip(CORPORA.items(), targets, strict=True):
            measure = partial(against_plain, name, folder, "float32", ours, plain)
            yield Row(stage, f"{stage}, {title}", target, measure)
        for (name, title), target in zip(CORPORA.items(), half_targets, strict=False):
            measure = partial(against_plain, name, folder, "bfloat16", ours, plain)
            yield Row(stage, f"{stage}, {title}{HALF}", target, measure)
    title = TITLES["cola"]
    of_lambda = f"λ training, one epoch, one thread, {title}"
    yield Row("λ", of_lambda, 6.0, partial(ranking_against_plain, folder, "float32"))
    yield Row("λ", f"{of_lambda}{HALF}", 9.0, partial(ranking_against_plain, folder, "bfloat16"))
    of_probing = f"probing, 15 epochs × {len(SEEDS)} seeds, {title}"
    yield Row("probing", of_probing, 40.0, partial(probing_against_plain, folder))
    yield Row("study", f"whole study, {title}", 25.0, partial(whole_study, "cola", folder))
    yield Row(
        "study",
        f"whole study, named entities, {TITLES['wnut']}",
        40.0,
        partial(whole_study, "wnut", folder),
    )
