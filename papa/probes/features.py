"""Features of a frozen encoder, or of its word embeddings: computed, stored on disk, or computed
anew for each window of rows.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.cores import free_threads, map_in_threads
from papa.errors import DataError, PapaError
from papa.models.encoder import Encoder, check_finite, numbers_of
from papa.probes.packed_features import PackedFeatures, live_features, pack_features
from papa.progress import Progress, ignore_progress
from papa.spec import ExecutionSpec, Precision
from papa.text.batches import MicroBatch, micro_batches
from papa.text.corpus import TokenisedSplit
from papa.text.layout import offsets_of, positions_in_spans

WINDOW_ROWS = 4096
"""Rows in a window at most."""
WINDOW_BYTES = 4 * 2**30
"""Size of a window's features in float32 at most."""


class WordEmbeddings:
    """A ``FeatureModel`` of word embeddings alone; in some encoders they are narrower than d."""

    # Without positions and layers, a token has one state.
    layers = 0

    def __init__(self, encoder: Encoder) -> None:
        self.model: nn.Module = encoder.model.get_input_embeddings()
        self.config = encoder.config
        self.device = encoder.device
        self.precision = encoder.precision
        self.word_embeddings = encoder.word_embeddings
        self.width = self.word_embeddings.shape[1]
        self.tokens_per_batch = encoder.tokens_per_batch

    def token_states(self, batch: MicroBatch) -> list[Float[Tensor, "tokens embedding"]]:
        states = [self.word_embeddings[batch.input_ids.to(self.device)].float()]
        check_finite(self.model, states, batch)
        return states


FeatureModel: TypeAlias = Encoder | WordEmbeddings
"""A frozen model that computes features."""


@contextmanager
def active_dropout(encoder: FeatureModel, seed: int) -> Iterator[None]:
    """Switch the encoder's dropout on inside the block, as the authors' code runs it."""
    # Module by module, as nothing says that all are in the same mode.
    modes = [(module, module.training) for module in encoder.model.modules()]
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        # The whole model: attention reads its own flag, not only that of its dropout modules.
        encoder.model.train()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


@dataclass(frozen=True)
class FeatureSource:
    """The features of a split, a window of rows at a time: ``stored``, or computed anew."""

    encoder: FeatureModel
    split: TokenisedSplit
    batch_tokens: int
    dtype: Precision
    dropout: bool = False
    stored: PackedFeatures | None = None

    def windows(self) -> Iterator[tuple[PackedFeatures, Int[Tensor, " rows"]]]:
        """Yield the windows of all rows. Delete one before the next is computed: both at once may
        not fit into memory.
        """
        rows = torch.arange(len(self.split))
        for members in rows.split(window_rows(self.encoder, self.split)):
            yield self.window(members.numpy())

    def window(
        self, rows: Int[np.ndarray, " rows"], dropout_seed: int = 0
    ) -> tuple[PackedFeatures, Int[Tensor, " rows"]]:
        """Return features, and the positions of these rows among them."""
        positions = torch.arange(len(rows))
        device = self.encoder.device
        if self.stored is None:
            with active_dropout(self.encoder, dropout_seed) if self.dropout else nullcontext():
                features = compute_features(
                    self.encoder, self.split, self.batch_tokens, self.dtype, rows=rows
                )
            return features, positions
        if self.stored.values.device.type == device.type:
            # Nothing is copied: row numbers of the split are row numbers of its features.
            return self.stored, torch.from_numpy(rows)
        return self.stored.select(torch.from_numpy(rows), device), positions


@contextmanager
def features_of(
    encoder: FeatureModel,
    split: TokenisedSplit,
    scratch: Path,
    execution: ExecutionSpec,
    dtype: Precision,
    *,
    dropout: bool = False,
    progress: Progress = ignore_progress,
) -> Iterator[FeatureSource]:
    """Yield the features of a split: in a file under ``scratch`` if they fit the budget; otherwise,
    and with ``dropout``, computed anew every epoch. Scores agree within float tolerance.
    """
    # Dropout depends on how rows are put into batches, so a setting of speed must not change that.
    tokens = encoder.tokens_per_batch(None if dropout else execution.batch_tokens)
    size = math.prod(values_shape(encoder, split)) * getattr(torch, dtype).itemsize
    if dropout or size > execution.features_budget_gb * 1e9:
        yield FeatureSource(encoder, split, tokens, dtype, dropout)
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".features-", dir=scratch) as folder:
        file = Path(folder) / "values.bin"
        features = compute_features(encoder, split, tokens, dtype, file=file, progress=progress)
        # Half of a GPU is left to the probes and their minibatches.
        if encoder.device.type == "cuda" and size < torch.cuda.mem_get_info(encoder.device)[0] / 2:
            features = replace(
                features,
                values=features.values.to(encoder.device),
                slot_ids=features.slot_ids.to(encoder.device),
                labels=features.labels.to(encoder.device),
            )
        yield FeatureSource(encoder, split, tokens, dtype, stored=features)


def values_shape(encoder: FeatureModel, split: TokenisedSplit) -> tuple[int, int, int]:
    """Return the tokens that a probe reads of a split, and the layers and width of features."""
    tokens = int(split.probed_lengths.sum())
    if tokens == 0:
        raise DataError(
            f"the {split.name} split has no labelled token: check the task's text and label columns"
        )
    return tokens, encoder.layers + 1, encoder.width


def window_rows(encoder: FeatureModel, split: TokenisedSplit, batch_size: int = 1) -> int:
    """Return how many rows a window has when a probe is trained or scored on a split: 4,096, or
    fewer if their features would exceed 4 GiB in float32; a multiple of ``batch_size``. It depends
    on corpus and encoder alone, and so does the order of rows in training.
    """
    row_bytes = max(1, math.prod(values_shape(encoder, split)) * 4 // max(len(split), 1))
    window = min(WINDOW_ROWS, max(1, WINDOW_BYTES // row_bytes))
    return max(batch_size, window - window % batch_size)


@torch.no_grad()
def compute_features(
    encoder: FeatureModel,
    split: TokenisedSplit,
    batch_tokens: int,
    dtype: Precision,
    *,
    rows: Int[np.ndarray, " rows"] | None = None,
    file: Path | None = None,
    progress: Progress = ignore_progress,
) -> PackedFeatures:
    """Run the encoder over ``rows``, ascending (None: all), and keep the features that a probe
    reads: on its device, or in a memory-mapped ``file`` of bare numbers [tokens, L+1, d].
    """
    rows = split.rows if rows is None else rows
    lengths = split.probed_lengths[split.index_of(rows)]
    offsets = offsets_of(lengths)
    stored_dtype = getattr(torch, dtype)
    shape = (int(offsets[-1]), encoder.layers + 1, encoder.width)
    if file is None:
        features = torch.empty(shape, dtype=stored_dtype, device=encoder.device)
    else:
        size = math.prod(shape)
        reserve(file, size * stored_dtype.itemsize)
        features = torch.from_file(str(file), shared=True, size=size, dtype=stored_dtype)
        features = features.view(shape)
    rows_done = 0
    for batch, values in _values_of(encoder, split, micro_batches(split, rows, batch_tokens)):
        index = np.searchsorted(rows, batch.rows.numpy())
        tokens = torch.from_numpy(positions_in_spans(offsets[index], lengths[index]))
        if len(tokens):
            features.index_copy_(
                0, tokens.to(features.device), values.to(features.device, stored_dtype)
            )
        rows_done += len(index)
        progress(rows_done, len(rows))
    return pack_features(features, split, rows)


def _values_of(
    encoder: FeatureModel, split: TokenisedSplit, batches: Iterable[MicroBatch]
) -> Iterator[tuple[MicroBatch, Float[Tensor, "kept layers width"]]]:
    """Yield batches with the features that a probe reads of them, row by row.

    As many batches at a time as there are unused cores, each on an encoder of its own: what is
    computed of a batch depends on no other.
    """

    def compute(model: FeatureModel, numbered: tuple[int, MicroBatch]) -> Tensor:
        number, batch = numbered
        # Gradients are switched off in each thread for itself.
        with torch.no_grad(), numbers_of(f"batch {number} of the {split.name} split"):
            return live_features(model.token_states(batch), split, batch).values

    models: list[FeatureModel] = [encoder]
    can_share = isinstance(encoder, Encoder) and encoder.can_have_twins
    remaining = enumerate(batches, 1)
    while True:
        side_by_side = list(islice(remaining, free_threads() if can_share else 1))
        if not side_by_side:
            return
        while isinstance(encoder, Encoder) and len(models) < len(side_by_side):
            models.append(encoder.twin())
        values = map_in_threads(compute, models, side_by_side)
        for (_, batch), batch_values in zip(side_by_side, values, strict=True):
            yield batch, batch_values


def reserve(path: Path, size: int) -> None:
    """Create a file of this size, so that a full disk is known before the encoder runs."""
    try:
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        folder = path.parent.resolve()
        raise PapaError(
            f"{folder} is too small ({error.strerror}) for the features of one cell, "
            f"{size / 1e9:.2f} GB: free some space, or set execution.features_budget_gb below that "
            "to run the encoder once an epoch"
        ) from None
