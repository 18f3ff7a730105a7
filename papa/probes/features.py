"""Features of a frozen encoder, computed once and written in place into a file that is mapped into memory."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.batches import CompactBatch
from papa.corpora.compact import compact_batches
from papa.corpora.split import TokenizedSplit
from papa.corpora.tokens import IGNORED
from papa.encoders.encoder import Encoder
from papa.errors import DataError, PapaError, SpecError
from papa.probes.packed import PackedFeatures, pack_batch
from papa.progress import Progress, silent

FeatureDtype = Literal["float32", "float16", "bfloat16"]


class DiskSpaceError(PapaError):
    """The disk is too small for a cell's features."""


def extract_features(
    encoder: Encoder,
    split: TokenizedSplit,
    path: Path,
    *,
    batch_tokens: int,
    dtype: FeatureDtype,
    pad_token_id: int,
    progress: Progress = silent,
) -> PackedFeatures:
    """Run the encoder once over a split and keep what the probe needs, on disk.

    Tasks with one label a row keep all real tokens, tasks with labels on tokens the labelled ones. The file
    holds the bare numbers, [tokens, L+1, d]. It takes its full size at once, so a full disk is known before
    the encoder runs, and each batch is written where it belongs: memory holds one batch, and a few bytes a
    token of slots and labels.

    Args:
        encoder: whatever replacement is active on it is in the features.
        split: the tokenised rows.
        path: the file to make.
        batch_tokens: tokens in a compact batch, padding included.
        dtype: how numbers are stored.
        pad_token_id: fills what padding a batch still needs.
        progress: told of rows.

    Raises:
        DataError: the split has no token that the probe could see.
        DiskSpaceError: the disk has no room for the file.
        SpecError: a number does not fit float16.
    """
    rows = np.arange(len(split))
    index = _TokenIndex(split, rows)
    values = mapped_values(path, count_tokens(split), encoder, dtype)
    index.fill(values, encoder, batch_tokens, pad_token_id, progress)
    return index.packed(values)


def compute_features(
    encoder: Encoder,
    split: TokenizedSplit,
    rows: np.ndarray,
    *,
    batch_tokens: int,
    dtype: FeatureDtype,
    pad_token_id: int,
    progress: Progress = silent,
) -> PackedFeatures:
    """The features of some rows, in the memory of the encoder's device.

    Args:
        rows: ascending row numbers; row i of the result is ``rows[i]``.
    """
    index = _TokenIndex(split, rows)
    shape = (index.tokens, encoder.layers + 1, encoder.width)
    values = torch.empty(shape, dtype=getattr(torch, dtype), device=encoder.device)
    index.fill(values, encoder, batch_tokens, pad_token_id, progress)
    return index.packed(values)


def count_tokens(split: TokenizedSplit) -> int:
    """Tokens of the split that a probe sees: the labelled ones, or all where rows have the labels.

    Raises:
        DataError: there are none.
    """
    wanted = np.count_nonzero(split.labels != IGNORED) if split.label_per_token else split.lengths.sum()
    if wanted == 0:
        raise DataError(f"the {split.name} split has no labelled token: check the task's text and label columns")
    return int(wanted)


def mapped_values(
    path: Path, tokens: int, encoder: Encoder, dtype: FeatureDtype
) -> Float[Tensor, "tokens layers width"]:
    """A new file of [tokens, L+1, d] numbers, mapped into memory for reading and writing.

    Its blocks are reserved at once: writing to a mapped file on a full disk would end the process without a
    word.

    Raises:
        DiskSpaceError: the disk has no room for the file.
    """
    stored = getattr(torch, dtype)
    count = tokens * (encoder.layers + 1) * encoder.width
    check_disk(path.parent, count * stored.itemsize)
    with path.open("xb") as file:
        try:
            _reserve(file.fileno(), count * stored.itemsize)
        except OSError as error:
            path.unlink()
            raise _too_small(path.parent, f"refused ({error.strerror})", count * stored.itemsize) from None
    flat = torch.from_file(str(path), shared=True, size=count, dtype=stored)
    return flat.view(tokens, encoder.layers + 1, encoder.width)


def check_disk(folder: Path, needed: int) -> None:
    """Raise DiskSpaceError unless the disk under ``folder`` has ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _too_small(folder, f"has {free / 1e9:.2f} GB free", needed)


def _too_small(folder: Path, found: str, needed: int) -> DiskSpaceError:
    return DiskSpaceError(
        f"{folder} {found}, the features of one cell need {needed / 1e9:.2f} GB: free some space, or set "
        "execution.features_budget_gb below that to run the encoder once an epoch"
    )


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


class _TokenIndex:
    """Which tokens of some rows are wanted, and where each belongs among packed features.

    Attributes:
        starts: [rows + 1], where each row's real tokens begin among the rows' real tokens.
        kept: which of those are wanted; None for all.
        before: [real tokens + 1], wanted tokens before each: the place of a wanted one.
    """

    def __init__(self, split: TokenizedSplit, rows: np.ndarray) -> None:
        self.split, self.rows = split, rows
        lengths = split.lengths[rows]
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        total = int(self.starts[-1])
        self.kept: np.ndarray | None = None
        self.before = np.arange(total + 1)
        if split.label_per_token:
            source = np.arange(total) + np.repeat(split.offsets[rows] - self.starts[:-1], lengths)
            self.token_labels = split.labels[source]
            self.kept = self.token_labels != IGNORED
            self.before = np.concatenate([[0], np.cumsum(self.kept)])
        self.tokens = int(self.before[-1])

    def fill(self, values: Tensor, encoder: Encoder, batch_tokens: int, pad_token_id: int, progress: Progress) -> None:
        """Run the encoder over the rows and write each wanted token where it belongs."""
        done = 0
        with torch.inference_mode():
            for batch in compact_batches(self.split, self.rows, batch_tokens, pad_token_id):
                mask, places = self._wanted(batch)
                if len(places):
                    hidden_states = encoder.hidden_states(batch)
                    found = pack_batch(hidden_states, mask.to(encoder.device)).to(values.dtype)
                    if values.dtype == torch.float16 and not bool(found.isfinite().all()):
                        raise SpecError(
                            "features.dtype: a feature exceeds what float16 can hold: use bfloat16 or float32"
                        )
                    values.index_copy_(0, places.to(values.device), found.to(values.device))
                done += len(batch.rows)
                progress(done, len(self.rows))

    def _wanted(self, batch: CompactBatch) -> tuple[Bool[Tensor, "batch m"], Int[Tensor, " wanted"]]:
        """The wanted tokens of a batch, and their places, row by row."""
        mask = batch.attention_mask
        starts = self.starts[np.searchsorted(self.rows, batch.rows.numpy())]
        # Slots ascend within a row, so a running count numbers its real tokens.
        token = torch.from_numpy(starts)[:, None] + mask.cumsum(1) - 1
        if self.kept is not None:
            mask = mask & torch.from_numpy(self.kept)[token]
        return mask, torch.from_numpy(self.before)[token[mask]]

    def packed(self, values: Float[Tensor, "tokens layers width"]) -> PackedFeatures:
        """The features with their slots and labels."""
        split = self.split
        whole = len(self.rows) == len(split)
        slots = (split.slot_ids if whole else split.tokens(self.rows).slots).astype(np.int64)
        labels = split.labels[self.rows] if self.kept is None else self.token_labels[self.kept]
        return PackedFeatures(
            values=values,
            offsets=torch.from_numpy(self.before[self.starts]),
            slots=torch.from_numpy(slots if self.kept is None else slots[self.kept]).to(values.device),
            labels=torch.from_numpy(labels).to(values.device),
            token_labels=split.label_per_token,
        )
