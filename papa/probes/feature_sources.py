"""Where a split's features come from: stored once for all epochs, or streamed by windows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from papa.corpora.split import TokenisedSplit
from papa.probes.features import FeatureModel, compute_features, count_tokens, extract_features
from papa.probes.packed import PackedFeatures
from papa.progress import Progress, ignore_progress
from papa.spec import Precision


@runtime_checkable
class FeatureSource(Protocol):
    """The features of a split, a window of rows at a time."""

    @property
    def split(self) -> TokenisedSplit:
        """The tokenised rows behind the features."""
        ...

    def window(self, rows: np.ndarray, dropout_seed: int = 0) -> tuple[PackedFeatures, np.ndarray]:
        """Return the features of a window, whose rows ascend, and each row's number in them."""
        ...


@dataclass(frozen=True)
class StoredFeatures:
    """Features of the whole split, computed before and mapped from disk."""

    split: TokenisedSplit
    features: PackedFeatures
    device: torch.device

    def window(self, rows: np.ndarray, dropout_seed: int = 0) -> tuple[PackedFeatures, np.ndarray]:
        """Return the whole split where it lies on the device, else a copy of the window there."""
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
        """Return the window's features, from one pass of the encoder."""
        with active_dropout(self.encoder, dropout_seed) if self.dropout else nullcontext():
            features = compute_features(
                self.encoder, self.split, rows, batch_tokens=self.batch_tokens, dtype=self.dtype
            )
        return features, np.arange(len(rows))


@contextmanager
def active_dropout(encoder: FeatureModel, seed: int) -> Iterator[None]:
    """Switch the encoder's dropout on inside the block; its modes and the random state come back
    after it.

    What is dropped depends on ``seed`` and on how rows fall into batches.
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


def feature_bytes(encoder: FeatureModel, split: TokenisedSplit, dtype: Precision) -> int:
    """Return how many bytes a split's features take on disk."""
    return (
        count_tokens(split) * (encoder.layers + 1) * encoder.width * getattr(torch, dtype).itemsize
    )


@contextmanager
def stored(
    encoder: FeatureModel,
    split: TokenisedSplit,
    scratch: Path,
    *,
    batch_tokens: int,
    dtype: Precision,
    progress: Progress = ignore_progress,
) -> Iterator[StoredFeatures]:
    """Keep features of a split in a file under ``scratch`` that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix=".features-", dir=scratch) as folder:
        features = extract_features(
            encoder,
            split,
            Path(folder) / "values.bin",
            batch_tokens=batch_tokens,
            dtype=dtype,
            progress=progress,
        )
        yield StoredFeatures(split, _resident(features, encoder.device), encoder.device)


def _resident(features: PackedFeatures, device: torch.device) -> PackedFeatures:
    """Move the features to the device where they take less than half of its free memory."""
    if device.type != "cuda":
        return features
    free, _ = torch.cuda.mem_get_info(device)
    # Half is left to the probes and their minibatches.
    return features.to(device) if features.values.nbytes < free / 2 else features
