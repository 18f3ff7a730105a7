"""λ of a model's heads in one call, and the order that it gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from papa.ablation.interface import attention_modules, head_count
from papa.ablation.substitutes import Mixed
from papa.errors import DataError, SpecError
from papa.library.ablating import By, ablated, substitute_for
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.fidelity import batches_of, kl_divergence, of_batch
from papa.library.tasks import LabelledData, Task, as_list, prepared
from papa.probes.own_model import check_own, opened_own
from papa.progress import bar
from papa.ranking import learned
from papa.ranking.given import numbers_of
from papa.ranking.own import train_lambda_of_own
from papa.ranking.seeds import TrainedLambda
from papa.spec.cells import constant_heads as first_heads
from papa.spec.orders import Head, head_order

Lambdas: TypeAlias = Any
"""What ``train_lambda`` gives; or λ of every head, in any such form, [layers, heads]."""


def train_lambda(
    encoder: TextEncoder,
    constants: Constants,
    dataset: LabelledData,
    task: Task | None = None,
    *,
    rows: int | None = None,
    epochs: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    progress: bool = True,
) -> TrainedLambda:
    """λ of every head: how much of its input-dependent attention it keeps, next to a probe (paper,
    Section 3.2); or, of a task with ``head="own"``, on what the model's own head answers.

    Printed, what it gives says whether the order of the heads can be told from chance.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> constants = papa.average(encoder, data["text"], progress=False)
        >>> splits = {"train": data, "validation": data}
        >>> lambdas = papa.train_lambda(encoder, constants, splits, progress=False)
        >>> lambdas.mean.shape  # layers, heads
        (6, 12)

    Args:
        encoder: frozen.
        constants: what attention is mixed with; see ``replaced``.
        dataset: a task's name, or data sets, data frames or mappings of columns under ``train`` and
            ``validation``.
        task: which columns hold what; None takes ``text`` and ``label``.
        rows: λ is trained on a sample of this many training rows; None takes all.
        epochs: None takes the task's.
        seeds: λ is trained once with each, which is of the probe's start and of the sample.
        progress: whether to show a bar.

    Raises:
        ArtifactError: the matrices are those of another encoder, or for another number of slots.
        DataError: a split or a column is missing, or a row does not fit the task.
        EncoderError: the model has no such head of its own, or is held in memory.
        SpecError: a value is impossible, or training diverged.
    """
    check_loaded(encoder)
    encoder.check_whole()
    matrices = constants_for(encoder, constants)
    ranking = {"rows": rows, "epochs": epochs, "seeds": as_list(seeds)}
    by_epoch = {}
    with prepared(encoder, dataset, task, sampled={}, ranking=ranking) as ready:
        (spec,) = ready.study.tasks
        trained: Any = partial(learned.train_lambda, encoder.encoder)
        if spec.head == "own":
            check_own(spec, encoder.reference, None, None)
            model, tokens = opened_own(spec, encoder.reference, str(encoder.encoder.device))
            trained = partial(train_lambda_of_own, model, special_tokens=tokens)
        for seed in seeds:
            with bar(f"λ, seed {seed}", progress) as report:
                by_epoch[seed] = trained(
                    constants=matrices,
                    corpus=ready.corpus,
                    task=spec,
                    ranking=ready.study.ranking,
                    seed=seed,
                    progress=report,
                ).numpy()
    return TrainedLambda(by_epoch)


def constant_heads(lambdas: Lambdas, fraction: float) -> tuple[Head, ...]:
    """The heads that are constant where this fraction stays input-dependent, λ ascending (paper,
    Section 3.2).

    Examples:
        >>> import papa, torch
        >>> papa.constant_heads(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), fraction=0.5)
        ((0, 1), (1, 0))

    Args:
        lambdas: as ``train_lambda`` gives them, of which the mean over seeds counts; a number for
            every head does, in an array, a list of lists or a data frame without other columns.
        fraction: the share of heads that keep their own attention, 0..1.

    Raises:
        SpecError: the fraction is not between 0 and 1, or the λ are no numbers [layers, heads].
    """
    if not 0 <= fraction <= 1:
        raise SpecError(
            f"fraction is {fraction}, expected the share of heads that stay input-dependent: 0 to 1"
        )
    numbers = numbers_of(lambdas)
    if numbers is None:
        found = f"a {type(lambdas).__name__}"
    elif numbers.ndim != 2 or not numbers.size:
        found = f"numbers of shape {list(numbers.shape)}"
    elif np.isnan(numbers).any():
        found = "nan among them"
    else:
        return first_heads(head_order("lambda", numbers, *numbers.shape), fraction)
    raise SpecError(
        f"lambdas: found {found}, expected λ of every head as train_lambda gives it, [layers, "
        "heads]"
    )


def train_own_lambda(
    model: nn.Module,
    data: Iterable[Mapping[str, Any]],
    by: By = "average",
    *,
    made_from: Iterable[Mapping[str, Any]] | None = None,
    epochs: int = 3,
    learning_rate: float = 0.05,
    seeds: Sequence[int] = (0, 1, 2),
    progress: bool = True,
) -> TrainedLambda:
    """λ of every head of λA + (1-λ)C, trained on what the model itself is for; its weights stay as
    they are.

    What is minimised follows from what the model puts out. A language model: its loss, of the next
    token or where ``labels`` say. Other logits: the Kullback-Leibler divergence from the model's
    own answers. Hidden states: one less the cosine of mean-pooled embeddings to their own.
    ``papa.constant_heads`` makes an order of what it gives.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> batch = {"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}
        >>> lambdas = papa.train_own_lambda(model, [batch], by="relative", progress=False)
        >>> len(papa.constant_heads(lambdas, fraction=0.5))
        2

    Args:
        model: as for ``papa.ablated``, in eval mode.
        data: what the model is called with: an iterable of keyword arguments; a step is taken on
            each.
        by: C, as for ``papa.ablated``.
        made_from: the same as ``data``, for a ``by`` that is made from text; None takes ``data``.
        epochs: passes over ``data``.
        learning_rate: of AdamW, for θ; λ = sigmoid(θ), and θ starts at 0 (Hassid et al., 2022,
            Section 3.2).
        seeds: λ is trained once with each, which is of the order of the batches.
        progress: whether to show a bar.

    Raises:
        EncoderError: the model is in train mode, or its attention cannot be reached.
        DataError: there is no answer to train on.
        SpecError: epochs, the learning rate or seeds are impossible, or training diverged.
    """
    if epochs < 1 or not learning_rate > 0 or not seeds:
        raise SpecError(
            f"epochs is {epochs}, learning_rate is {learning_rate} and seeds are {list(seeds)}, "
            "expected 1 or more, above 0, and at least one"
        )
    batches = batches_of(model, data)
    sizes = [head_count(module) for module in attention_modules(model)]
    every = {layer: range(size) for layer, size in enumerate(sizes)}
    substitute = substitute_for(model, by, data=batches if made_from is None else made_from)
    by_epoch: dict[int, np.ndarray] = {}
    with _frozen(model):
        for seed in seeds:
            theta = torch.zeros(len(sizes), sizes[0], requires_grad=True)
            optimizer = torch.optim.AdamW([theta], lr=learning_rate, weight_decay=0.0)
            draw, found = torch.Generator().manual_seed(seed), []
            with bar(f"λ, seed {seed}", progress) as report:
                for epoch in range(epochs):
                    for step, index in enumerate(
                        torch.randperm(len(batches), generator=draw).tolist(), 1
                    ):
                        own = _answers(model, batches[index])
                        with (
                            torch.enable_grad(),
                            ablated(model, every, Mixed(substitute, theta.sigmoid())),
                        ):
                            loss = _loss(
                                own, of_batch(model, batches[index], model(**batches[index]))
                            )
                        if not loss.isfinite():
                            raise SpecError(
                                f"training λ diverged: the loss is {loss.item()}; lower "
                                "learning_rate, or look at the model's answers to the data"
                            )
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        report(epoch * len(batches) + step, epochs * len(batches))
                    found.append(theta.detach().sigmoid().numpy().copy())
            by_epoch[seed] = np.stack(found)
    return TrainedLambda(by_epoch)


@torch.no_grad()
def _answers(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    found = of_batch(model, inputs, model(**inputs))
    if not found["lengths"].sum():
        raise DataError(
            "a batch of data holds no token that counts: give longer texts, or labels that are "
            "not all -100"
        )
    return found


def _loss(own: Mapping[str, Tensor], mixed: Mapping[str, Tensor]) -> Tensor:
    if "loss" in mixed:
        return mixed["loss"].mean()
    if "embeddings" in mixed:
        return 1 - nn.functional.cosine_similarity(mixed["embeddings"], own["embeddings"]).mean()
    name = "words" if "words" in mixed else "logits"
    return kl_divergence(own[name], mixed[name]).mean()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
