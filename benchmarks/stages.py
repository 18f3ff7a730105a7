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
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import compute_features
from papa.ranking.learned import train_lambda
from papa.ranking.orders import head_order
from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec
from papa.spec.orders import Head, constant_heads

SEEDS = (0, 1, 2)
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
LAMBDA_EPOCHS = 2


def average(setting: Setting) -> ConstantMatrices:
    """Our average over the training text."""
    model, train = encoder(), setting.corpus.split("train")
    tokens = model.tokens_per_batch(None)
    return average_split(model, train, slots=setting.task.slots, batch_tokens=tokens).average()


def features(setting: Setting, folder: Path) -> None:
    """Our features of the training text."""
    path, model = folder / f"features-{time.monotonic_ns()}", encoder()
    train, tokens = setting.corpus.split("train"), model.tokens_per_batch(None)
    compute_features(model, train, tokens, "float32", file=path)
    path.unlink()


def ranking(setting: Setting, constants: ConstantMatrices, epochs: int = 1) -> Tensor:
    """Our λ training."""
    settings = RankingSpec(epochs=epochs)
    return train_lambda(encoder(), constants, setting.corpus, setting.task, settings)


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


def against_plain(stage: str, name: str, folder: Path) -> Comparison:
    """A stage on a corpus; an epoch of λ both ways on one thread, as minibatches as small as its
    stay on one worker.
    """
    setting, threads = sample(name, folder), torch.get_num_threads()
    if stage == "averaging":
        return in_turn(partial(average, setting), plain_average(setting))
    if stage == "features":
        return in_turn(partial(features, setting, folder), plain_features(setting))
    if stage == "probing":
        work, times = plain_probing(setting)
        epochs = setting.task.probe.epochs * len(SEEDS)
        return in_turn(partial(probing, setting, folder), Part(work, times * epochs))
    constants = average(setting)
    torch.set_num_threads(1)
    try:
        plain = plain_ranking(setting, constants.matrices)
        return in_turn(partial(ranking, setting, constants), plain)
    finally:
        torch.set_num_threads(threads)


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
            encoder.token_states(batch)

    return in_turn(ours, Part(lambda: stock(input_ids=batch.input_ids.view(inputs, slots))))


def whole_study(name: str, folder: Path) -> Comparison:
    """Average, two epochs of λ, and five fractions × seeds × epochs."""
    setting, model = sample(name, folder), encoder()

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
        parts.append(Part(work, times * setting.task.probe.epochs * len(SEEDS)))
    return in_turn(ours, *parts)


def stage_rows(folder: Path) -> Iterator[Row]:
    """A pass of the encoder on three corpora, λ and probing on CoLA, and whole studies."""
    whole = "whole encoder, all heads constant, against SDPA"
    yield Row("heads", whole, constant_heads_against_sdpa)
    named = [
        (one, one, name) for name in ("cola", "ud", "rte") for one in ("averaging", "features")
    ]
    named += [
        ("λ", "λ training, one epoch, one thread", "cola"),
        ("probing", f"probing, 15 epochs × {len(SEEDS)} seeds", "cola"),
    ]
    for stage, title, name in named:
        measure = partial(against_plain, stage, name, folder)
        yield Row(stage, f"{title}, {TITLES[name]}", measure)
    for name in ("cola", "wnut"):
        yield Row("study", f"whole study, {TITLES[name]}", partial(whole_study, name, folder))
