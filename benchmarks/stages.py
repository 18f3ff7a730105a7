"""The stages of a study, ours against the plain way: averaging, features, λ, probing and
the whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.plain import plain_average, plain_features, plain_probing, plain_ranking
from benchmarks.setting import TITLES, Setting, base_sized, encoder, full_batch, sample
from benchmarks.timing import Comparison, Part, Row, in_turn
from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder
from papa.encoders.reference import has_bfloat16
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import compute_features
from papa.ranking.learned import train_lambda
from papa.ranking.orders import head_order
from papa.spec import ExecutionSpec, FeaturesSpec, Precision, RankingSpec
from papa.spec.orders import Head, constant_heads

SEEDS = (0, 1, 2)
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
LAMBDA_EPOCHS = 2


def average(setting: Setting, precision: Precision = "float32") -> ConstantMatrices:
    """Our average over the training text."""
    model, train = encoder(precision), setting.corpus.split("train")
    tokens = model.tokens_per_batch(None)
    return average_split(model, train, slots=setting.task.slots, batch_tokens=tokens).average()


def averaging_against_plain(name: str, folder: Path, precision: Precision) -> Comparison:
    """An average over a corpus."""
    setting = sample(name, folder)
    return in_turn(partial(average, setting, precision), plain_average(setting))


def features(setting: Setting, precision: Precision = "float32", *, folder: Path) -> None:
    """Our features of the training text."""
    path, model = folder / f"features-{time.monotonic_ns()}", encoder(precision)
    train, tokens = setting.corpus.split("train"), model.tokens_per_batch(None)
    compute_features(model, train, tokens, "float32", file=path)
    path.unlink()


def features_against_plain(name: str, folder: Path, precision: Precision) -> Comparison:
    """The features of a corpus."""
    setting = sample(name, folder)
    return in_turn(partial(features, setting, precision, folder=folder), plain_features(setting))


def ranking(
    setting: Setting,
    constants: ConstantMatrices,
    precision: Precision = "float32",
    epochs: int = 1,
) -> Tensor:
    """Our λ training."""
    settings = RankingSpec(epochs=epochs)
    return train_lambda(encoder(precision), constants, setting.corpus, setting.task, settings)


def probing(
    setting: Setting,
    folder: Path,
    constants: ConstantMatrices | None = None,
    heads: Sequence[Head] = (),
    epochs: int = 0,
    budget: float = 20.0,
    seeds: Sequence[int] = SEEDS,
) -> None:
    """Our cell: features once, all seeds, all epochs."""
    probe = setting.task.probe
    probe = probe.model_copy(update={"epochs": epochs or probe.epochs})
    with nullcontext() if constants is None else replaced(encoder(), constants, heads):
        evaluate_cell(
            encoder(),
            setting.corpus,
            setting.task.model_copy(update={"probe": probe}),
            seeds,
            features=FeaturesSpec(),
            execution=ExecutionSpec(features_budget_gb=budget),
            scratch=folder,
        )


def ranking_against_plain(folder: Path, precision: Precision) -> Comparison:
    """An epoch of λ on CoLA, both ways on one thread: minibatches as small as these stay on one
    worker.
    """
    cola, threads = sample("cola", folder), torch.get_num_threads()
    constants = average(cola)
    torch.set_num_threads(1)
    try:
        ours = partial(ranking, cola, constants, precision)
        return in_turn(ours, plain_ranking(cola, constants.matrices))
    finally:
        torch.set_num_threads(threads)


def probing_against_plain(folder: Path) -> Comparison:
    """A cell of CoLA."""
    cola = sample("cola", folder)
    work, times = plain_probing(cola)
    epochs = cola.task.probe.epochs * len(SEEDS)
    return in_turn(partial(probing, cola, folder), Part(work, times * epochs))


@torch.inference_mode()
def constant_heads_against_sdpa() -> Comparison:
    """A whole encoder of BERT-base's size with all heads constant, n=256, no padding."""
    inputs, slots = 8, 256
    stock, encoder = base_sized("sdpa"), Encoder(base_sized("eager"))
    batch, shape = full_batch(inputs, slots), (encoder.layers, encoder.heads, slots, slots)
    everywhere = torch.ones(slots, slots, dtype=torch.bool)
    constants = ConstantMatrices(torch.rand(shape), everywhere, "average")
    order = head_order("first_to_last", None, encoder.layers, encoder.heads)

    def ours() -> None:
        with replaced(encoder, constants, order):
            encoder.observe(batch)

    return in_turn(ours, Part(lambda: stock(input_ids=batch.input_ids.view(inputs, slots))))


def whole_study(name: str, folder: Path) -> Comparison:
    """Average, two epochs of λ, and five fractions × seeds × epochs."""
    setting, model = sample(name, folder), encoder()
    epochs = setting.task.probe.epochs * len(SEEDS)

    def ours() -> None:
        constants = average(setting)
        lambdas = ranking(setting, constants, epochs=LAMBDA_EPOCHS)
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
    """A pass of the encoder on three corpora, λ and probing on CoLA, and whole studies."""
    yield Row(
        "heads", "whole encoder, all heads constant, against SDPA", constant_heads_against_sdpa
    )
    precisions: list[tuple[Precision, str]] = [("float32", "")]
    if has_bfloat16():
        precisions.append(("bfloat16", ", bfloat16 against float32"))
    for precision, against in precisions:
        for name in ("cola", "ud", "rte"):
            title = f"{TITLES[name]}{against}"
            asked = name, folder, precision
            averaging = partial(averaging_against_plain, *asked)
            yield Row("averaging", f"averaging, {title}", averaging)
            yield Row("features", f"features, {title}", partial(features_against_plain, *asked))
        yield Row(
            "λ",
            f"λ training, one epoch, one thread, {TITLES['cola']}{against}",
            partial(ranking_against_plain, folder, precision),
        )
    of_probing = f"probing, 15 epochs × {len(SEEDS)} seeds, {TITLES['cola']}"
    yield Row("probing", of_probing, partial(probing_against_plain, folder))
    for name in ("cola", "wnut"):
        yield Row("study", f"whole study, {TITLES[name]}", partial(whole_study, name, folder))
