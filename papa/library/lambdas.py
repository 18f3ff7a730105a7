"""λ of a model's heads in one call, and the order that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from papa.corpora.tokens import special_tokens_of
from papa.errors import SpecError
from papa.library.bars import bar
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder
from papa.library.tasks import LabelledData, Task, prepared
from papa.probes.own import check_own, load_own, own_class
from papa.ranking import learned
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
    encoder.check_whole()
    matrices = constants_for(encoder, constants)
    ranking = {"rows": rows, "epochs": epochs, "seeds": list(seeds)}
    by_epoch = {}
    with prepared(encoder, dataset, task, sampled={}, ranking=ranking) as ready:
        (one,) = ready.study.tasks
        trained: Any = partial(learned.train_lambda, encoder.encoder)
        if one.head == "own":
            check_own(one, encoder.reference, None, None)
            model = load_own(
                encoder.reference,
                own_class(one, encoder.reference),
                str(encoder.encoder.device),
            )
            trained = partial(
                train_lambda_of_own, model, special_tokens=special_tokens_of(encoder.tokenizer)
            )
        for seed in seeds:
            with bar(f"λ, seed {seed}", progress) as report:
                by_epoch[seed] = trained(
                    constants=matrices,
                    corpus=ready.corpus,
                    task=one,
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
    lambdas = lambdas.mean if isinstance(lambdas, TrainedLambda) else lambdas
    found = f"a {type(lambdas).__name__}"
    with suppress(TypeError, ValueError):
        numbers = (
            lambdas.detach().cpu()
            if isinstance(lambdas, Tensor)
            else torch.tensor(np.array(lambdas, float))
        )
        if numbers.ndim == 2 and numbers.numel() and not numbers.isnan().any():
            return first_heads(head_order("lambda", numbers, *numbers.shape), fraction)
        found = (
            "nan among them"
            if numbers.ndim == 2 and numbers.numel()
            else f"numbers of shape {list(numbers.shape)}"
        )
    raise SpecError(
        f"lambdas: found {found}, expected λ of every head as train_lambda gives it, [layers, "
        "heads]"
    )
