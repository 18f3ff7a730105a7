"""The steps of the method, one call each: average, replace, features, probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from papa.attention import replacement
from papa.attention.average import averaging, check_sums
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import EntryCounts
from papa.errors import SpecError
from papa.library.ablating import Heads, heads_by_layer
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.inputs import LaidOut, Texts, laid_out
from papa.library.tasks import LabelledData, Task, as_list, prepared
from papa.probes.evaluate import evaluate_cell
from papa.probes.training import SeedScore
from papa.progress import bar
from papa.spec.orders import Head


def average(
    encoder: TextEncoder,
    texts: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> ConstantMatrices:
    """The average of the encoder's attention over unlabelled texts, head by head (paper, Section
    3.1).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> constants.matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    Args:
        encoder: whose attention.
        texts: strings, pairs of strings, or a data set or data frame with a column of strings.
        text: the column with the texts, where they are a table.
        text_pair: the column with the second texts, where there are two per input.
        progress: whether to show a bar.

    Raises:
        DataError: there is no text, or what was given is something else.
    """
    check_loaded(encoder)
    encoder.check_whole()
    return average_of(encoder, laid_out(encoder, texts, text, text_pair), progress)


@torch.no_grad()
def average_of(encoder: TextEncoder, inputs: LaidOut, progress: bool) -> ConstantMatrices:
    """The average over texts that are laid out; see ``average``."""
    done = 0
    with (
        bar("averaging", progress) as report,
        averaging(encoder.encoder, encoder.slots) as averager,
    ):
        for batch in inputs.batches():
            encoder.encoder.observe(batch)
            done += len(batch.rows)
            report(done, len(inputs))
    check_sums(averager.sums, encoder.encoder, inputs.batches(), "the texts")
    found, digest = averager.result().average(), encoder.reference.digest
    return replace(found, encoder_digest=digest, special=inputs.special)


@contextmanager
def replaced(
    encoder: TextEncoder, constants: Constants, heads: Sequence[Head]
) -> Iterator[EntryCounts]:
    """Inside the block these heads use constant matrices; the encoder is as before after it (paper,
    Section 3.1).

    A block inside a block replaces further heads, and heads that both name for as long as it lasts.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> with papa.replaced(encoder, constants, heads=[(0, 3), (5, 7)]) as entries:
        ...     features = papa.features(encoder, ["A third text."], progress=False)
        >>> entries.unseen_share  # of the entries read, how many the average had never seen
        0.0

    Args:
        encoder: changed inside the block.
        constants: what ``average`` gave for this encoder, the name of a control (``constants``), or
            a tensor or array [layers, heads, slots, slots].
        heads: (layer, head) of the constant heads, both from 0.

    Yields:
        What inputs read of the constants, and how much of it the average had never seen.

    Raises:
        ArtifactError: the matrices are those of another encoder, of another shape, or hold NaN or
            infinity.
        SpecError: there is no such head or control.
    """
    check_loaded(encoder)
    matrices = constants_for(encoder, constants)
    with replacement.replaced(encoder.encoder, matrices, pairs_of(encoder, heads)) as entries:
        yield entries


def pairs_of(encoder: TextEncoder, heads: Heads) -> list[Head]:
    """The heads as (layer, head)."""
    by_layer = heads_by_layer(heads, [encoder.heads] * encoder.layers)
    return [(layer, head) for layer, own in by_layer.items() for head in own]


@torch.no_grad()
def features(
    encoder: TextEncoder,
    texts: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> list[Float[Tensor, "tokens layers width"]]:
    """The frozen hidden states of each text, as probes see them (paper, Section 3.3).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another, longer one."]
        >>> states = papa.features(encoder, texts, progress=False)
        >>> [tuple(one.shape) for one in states]  # tokens; embeddings and layers; width
        [(6, 7, 384), (7, 7, 384)]

    Args:
        encoder: inside ``replaced`` with constant heads.
        texts: as for ``average``.
        text: as for ``average``.
        text_pair: as for ``average``.
        progress: whether to show a bar.

    Returns:
        A tensor for each text, in their order, on the CPU: its real tokens, the L+1 hidden states,
        width d.

    Raises:
        DataError: there is no text, or what was given is something else.
    """
    check_loaded(encoder)
    inputs, done = laid_out(encoder, texts, text, text_pair), 0
    found: dict[int, Tensor] = {}
    with bar("features", progress) as report:
        for batch in inputs.batches():
            states = torch.stack(encoder.encoder.token_states(batch), dim=1).cpu()
            lengths = batch.inputs_of_tokens.bincount(minlength=len(batch.rows)).tolist()
            # Clones: a text that is kept would keep the whole batch in memory.
            found |= dict(
                zip(
                    batch.rows.tolist(), [own.clone() for own in states.split(lengths)], strict=True
                )
            )
            done += len(batch.rows)
            report(done, len(inputs))
    return [found[number] for number in range(len(inputs))]


def fit_probe(
    encoder: TextEncoder,
    dataset: LabelledData,
    task: Task | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    train_rows: int | None = None,
    validation_rows: int | None = None,
    progress: bool = True,
) -> list[SeedScore]:
    """Train the task's probe on frozen features and score it on the validation split (paper,
    Section 3.3).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> splits = {"train": data, "validation": data}
        >>> scores = papa.fit_probe(encoder, splits, seeds=[0, 1], progress=False)
        >>> [one.seed for one in scores], all(0 <= one.score <= 1 for one in scores)
        ([0, 1], True)

    Args:
        encoder: frozen; inside ``replaced`` with constant heads.
        dataset: as for ``train_lambda``.
        task: which columns hold what; None takes ``text`` and ``label``.
        seeds: a probe for each.
        train_rows: a sample of that many training rows; None takes all.
        validation_rows: likewise of validation rows.
        progress: whether to show a bar.

    Returns:
        A score for each seed, with what each validation row adds to it.

    Raises:
        DataError: a split or a column is missing, or a row does not fit the task.
        SpecError: a value is impossible, or training diverged.
    """
    check_loaded(encoder)
    sampled = {"train_rows": train_rows, "validation_rows": validation_rows}
    with (
        prepared(encoder, dataset, task, sampled=sampled, seeds=as_list(seeds)) as ready,
        bar("probing", progress) as report,
    ):
        study = ready.study
        if study.tasks[0].head == "own":
            raise SpecError(
                f"task '{study.tasks[0].name}' has head=\"own\", and a probe is another one: leave "
                "head out, or take papa.measure"
            )
        return evaluate_cell(
            encoder.encoder,
            ready.corpus,
            study.tasks[0],
            study.seeds,
            features=study.features,
            execution=study.execution,
            scratch=ready.folder,
            code=ready.code,
            progress=report,
        )
