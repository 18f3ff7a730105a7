"""Features of a frozen encoder, or of its word embeddings: stored once for all epochs in a
memory-mapped file, or streamed by windows.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch, micro_batches
from papa.corpora.ragged import offsets_of, positions_in_spans
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.encoders.finite import check_states, numbers_of
from papa.errors import PapaError
from papa.probes.packed import (
    PackedFeatures,
    count_tokens,
    pack_features,
    pack_states,
    probed_tokens,
)
from papa.progress import Progress, ignore_progress
from papa.spec import Precision


@runtime_checkable
class FeatureModel(Protocol):
    """A frozen model that features come from, such as an ``Encoder`` or its ``WordEmbeddings``."""

    model: nn.Module
    config: Any
    device: torch.device
    layers: int
    width: int
    precision: Precision

    @property
    def word_embeddings(self) -> Tensor:
        """Of the vocabulary."""
        ...

    @property
    def tokens_per_batch(self) -> Callable[[int | None], int]:
        """See ``Encoder.tokens_per_batch``."""
        ...

    def token_states(self, batch: MicroBatch) -> list[Tensor]:
        """The L+1 hidden states of the real tokens, input by input."""
        ...


class WordEmbeddings:
    """The word embedding of each token: no positions, no layers, so ``layers`` is 0 and there is
    one hidden state, whose width e some encoders (ALBERT, small ELECTRA) have smaller than d.
    """

    layers = 0

    def __init__(self, encoder: Encoder) -> None:
        self.model: nn.Module = encoder.model.get_input_embeddings()  # type: ignore[operator]
        self.config = encoder.config
        self.word_embeddings = encoder.word_embeddings
        self.device = encoder.device
        self.width = self.word_embeddings.shape[1]
        self.tokens_per_batch = encoder.tokens_per_batch
        self.precision = encoder.precision

    def token_states(self, batch: MicroBatch) -> list[Float[Tensor, "tokens embedding"]]:
        """Return the embedding of each real token, input by input."""
        states = [self.word_embeddings[batch.input_ids.to(self.device)].float()]
        check_states(self.model, states, batch)
        return states


@dataclass(frozen=True)
class StoredFeatures:
    """Features of the whole split, computed before and mapped from disk."""

    split: TokenisedSplit
    features: PackedFeatures
    device: torch.device

    def window(self, rows: np.ndarray, dropout_seed: int = 0) -> tuple[PackedFeatures, np.ndarray]:
        """The whole split where it lies on the device, else a copy of the window there."""
        if self.features.device.type == self.device.type:
            # Nothing is copied: row numbers of the split are row numbers of its features.
            return self.features, rows
        return self.features.select(torch.from_numpy(rows)).to(self.device), np.arange(len(rows))


@dataclass(frozen=True)
class StreamedFeatures:
    """Features that the encoder computes anew for every window: one pass per epoch serves all
    seeds. With ``dropout`` the encoder's is active, as the authors' code runs it.
    """

    split: TokenisedSplit
    encoder: FeatureModel
    batch_tokens: int
    dtype: Precision
    dropout: bool = False

    def window(self, rows: np.ndarray, dropout_seed: int = 0) -> tuple[PackedFeatures, np.ndarray]:
        """The window's features, from one pass of the encoder."""
        with active_dropout(self.encoder, dropout_seed) if self.dropout else nullcontext():
            features = compute_features(
                self.encoder, self.split, rows, batch_tokens=self.batch_tokens, dtype=self.dtype
            )
        return features, np.arange(len(rows))


@contextmanager
def active_dropout(encoder: FeatureModel, seed: int) -> Iterator[None]:
    """Switch the encoder's dropout on inside the block; its modes and the random state come back
    after it.
    """
    # Module by module, as nothing says that all are in the same mode.
    modes: list[tuple[nn.Module, bool]] = [
        (module, module.training) for module in encoder.model.modules()
    ]
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


FeatureSource = StoredFeatures | StreamedFeatures
"""The features of a split, a window of rows at a time."""


@contextmanager
def features_of(
    encoder: FeatureModel,
    split: TokenisedSplit,
    scratch: Path,
    *,
    kept: bool,
    dropout: bool = False,
    batch_tokens: int | None,
    dtype: Precision,
    progress: Progress = ignore_progress,
) -> Iterator[FeatureSource]:
    """Features of a split: kept in a file under ``scratch`` that is gone after the block, or
    streamed.
    """
    # What is dropped depends on how rows fall into batches: no setting of speed may decide on that.
    tokens = encoder.tokens_per_batch(None if dropout else batch_tokens)
    if not kept:
        yield StreamedFeatures(split, encoder, tokens, dtype, dropout)
        return
    with tempfile.TemporaryDirectory(prefix=".features-", dir=scratch) as folder:
        path = Path(folder) / "values.bin"
        features = extract_features(
            encoder, split, path, batch_tokens=tokens, dtype=dtype, progress=progress
        )
        if encoder.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(encoder.device)
            # Half is left to the probes and their minibatches.
            if features.values.nbytes < free / 2:
                features = features.to(encoder.device)
        yield StoredFeatures(split, features, encoder.device)


def feature_bytes(encoder: FeatureModel, split: TokenisedSplit, dtype: Precision) -> int:
    """How many bytes a split's features take on disk."""
    return (
        count_tokens(split) * (encoder.layers + 1) * encoder.width * getattr(torch, dtype).itemsize
    )


def extract_features(
    encoder: FeatureModel,
    split: TokenisedSplit,
    path: Path,
    *,
    batch_tokens: int,
    dtype: Precision,
    progress: Progress = ignore_progress,
) -> PackedFeatures:
    """Run the encoder, with whatever replacement is active on it, once over a split and keep what
    the probe sees in a file of bare numbers, [tokens, L+1, d].

    It takes its full size at once, so a full disk is known before the encoder runs, and each batch
    is written where it belongs: memory holds one batch, and a few bytes per token.
    """
    # Offsets are known before any number is: batches may come in any order.
    tokens, offsets = count_tokens(split), offsets_of(split.probed_lengths)
    stored, token_values = getattr(torch, dtype), (encoder.layers + 1) * encoder.width
    token_bytes = token_values * stored.itemsize
    with reserved(path, tokens * token_bytes) as file:
        for rows, values in _batches(encoder, split, split.rows, stored, batch_tokens, progress):
            # One write per row: writing through a mapped file costs a page fault every 4 KiB.
            content, written = values.cpu().view(torch.uint8).numpy().data.cast("B"), 0
            index = split.index_of(rows)
            for start, end in zip(
                offsets[index].tolist(), offsets[index + 1].tolist(), strict=True
            ):
                size = (end - start) * token_bytes
                file.seek(start * token_bytes)
                file.write(content[written : written + size])
                written += size
    mapped = torch.from_file(str(path), shared=True, size=tokens * token_values, dtype=stored)
    return pack_features(mapped.view(tokens, encoder.layers + 1, encoder.width), split, split.rows)


def compute_features(
    encoder: FeatureModel,
    split: TokenisedSplit,
    rows: Int[np.ndarray, " rows"],
    *,
    batch_tokens: int,
    dtype: Precision,
) -> PackedFeatures:
    """The features of some rows, which ascend, in the memory of the encoder's device."""
    lengths = split.probed_lengths[split.index_of(rows)]
    offsets = offsets_of(lengths)
    shape = (int(offsets[-1]), encoder.layers + 1, encoder.width)
    features = torch.empty(shape, dtype=getattr(torch, dtype), device=encoder.device)
    for batch_rows, values in _batches(encoder, split, rows, features.dtype, batch_tokens):
        index = np.searchsorted(rows, batch_rows)
        tokens = torch.from_numpy(positions_in_spans(offsets[index], lengths[index]))
        features.index_copy_(0, tokens.to(encoder.device), values)
    return pack_features(features, split, rows)


@torch.inference_mode()
def _batches(
    encoder: FeatureModel,
    split: TokenisedSplit,
    rows: Int[np.ndarray, " rows"],
    dtype: torch.dtype,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> Iterator[tuple[Int[np.ndarray, " batch"], Float[Tensor, "kept layers width"]]]:
    """Run the encoder over the rows; yields each batch's rows and what a probe sees of them."""
    done = 0
    for number, batch in enumerate(micro_batches(split, rows, batch_tokens), 1):
        batch_rows = batch.rows.numpy()
        kept = probed_tokens(split, batch_rows)
        if kept is None or kept.any():
            with numbers_of(f"batch {number} of the {split.name} split"):
                token_states = encoder.token_states(batch)
            yield batch_rows, pack_states(token_states, kept).to(dtype)
        done += len(batch_rows)
        progress(done, len(rows))


class DiskSpaceError(PapaError):
    """The disk is too small for a cell's features."""


def reserved(path: Path, size: int) -> BinaryIO:
    """A new file to write, whose blocks are reserved at once where the file system can."""
    check_disk(path.parent, size)
    file = path.open("xb")
    try:
        _reserve(file.fileno(), size)
    except OSError as error:
        file.close()
        path.unlink()
        raise _too_small(path.parent, f"refused ({error.strerror})", size) from None
    return file


def _reserve(file: int, size: int) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except AttributeError:
        os.truncate(file, size)
    except OSError as error:
        # Some file systems cannot reserve; a full disk is another matter.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        os.truncate(file, size)


def check_disk(folder: Path, needed: int) -> None:
    """Raise DiskSpaceError unless the disk under ``folder`` has ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _too_small(folder, f"has {free / 1e9:.2f} GB free", needed)


def _too_small(folder: Path, state: str, needed: int) -> DiskSpaceError:
    return DiskSpaceError(
        f"{folder} {state}, the features of one cell need {needed / 1e9:.2f} GB: free some space, "
        "or set execution.features_budget_gb below that to run the encoder once an epoch"
    )
