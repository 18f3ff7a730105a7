"""What only a GPU can show, in about five minutes: ``python -m benchmarks.on_gpu``.

Prints a table of how far results on the GPU are from the CPU's, beside the limit of each; and of
seconds and peak memory, ours and of the plain way on the same device. Without a GPU everything runs
small on the CPU, which shows only that the script itself works.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

import papa
from benchmarks.setting import base_sized, full_batch
from benchmarks.sweep import (
    GPT2_SIZES,
    TOKENS,
    Sizes,
    effects_by_hooks,
    effects_by_papa,
    effects_by_workers,
    passes_of_one_head,
    random_decoder,
    random_ids,
    save_as_study,
    store_with_inputs,
)
from benchmarks.timing import seconds
from papa.heads.average import AttentionAverager
from papa.models.encoder import Encoder
from papa.models.reference import EMBEDDED
from papa.text.batches import MicroBatch
from papa.text.sources import read_reviews
from papa.worker import Worker
from tests.make import DECODERS, TEXT, answers, inputs_of, random_model

HEADS = [(0, 1), (1, 0), (1, 3), (2, 2)]
"""That are replaced in every small model."""
REPEATS = 3
"""Of each timing, of which the shortest counts."""


@dataclass(frozen=True)
class Extent:
    """How much is computed.

    Attributes:
        families: The small models that are compared.
        reviews: Training rows of the probes; half as many are measured.
        decoder: The decoder of the sweep.
        texts: The texts of the sweep, and of the average.
        slots: The tokens of each text that is averaged.
    """

    families: tuple[str, ...]
    reviews: int
    decoder: Sizes
    texts: int
    slots: int


ON_GPU = Extent((*TEXT, *DECODERS), reviews=200, decoder=GPT2_SIZES, texts=32, slots=256)
SMALL = Extent(("bert", "gpt2"), 16, Sizes(layers=2, heads=2, width=32), texts=4, slots=16)


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        what: What was computed.
        result: What came out, in words.
        limit: What it must not exceed; "" where it is only reported.
        is_within: Whether it does not.
    """

    what: str
    result: str
    limit: str = ""
    is_within: bool = True


def difference(what: str, found: Any, expected: Any, limit: float, control: float) -> Line:
    """Return the largest difference between two results.

    Args:
        what: What was computed.
        found: On the device.
        expected: On the CPU.
        limit: What the difference must not exceed.
        control: How large results are, or what a wrong one would differ by: far above the limit.
    """
    largest = float(np.abs(np.asarray(found) - np.asarray(expected)).max())
    is_within = largest <= limit < control
    return Line(what, f"{largest:.1e} (control {control:.1e})", f"{limit:.0e}", is_within)


def family_lines(device: str, extent: Extent) -> Iterator[Line]:
    """Yield heads of each family replaced by their average."""
    for name in extent.families:
        model = random_model(name).float()
        inputs = inputs_of(name)
        before = answers(model, inputs)
        outputs: list[Tensor] = []
        for place in ("cpu", device):
            model.to(place)
            there = {key: tensor.to(place) for key, tensor in inputs.items()}
            with papa.ablated(model, HEADS, data=[there]):
                outputs.append(answers(model, there).cpu())
        scale = float(outputs[0].abs().max())
        changed = float((outputs[0] - before).abs().max())
        what = f"{name}: outputs with averages"
        yield difference(what, outputs[1] / scale, outputs[0] / scale, 1e-4, changed / scale)


def encoder_lines(device: str, extent: Extent) -> Iterator[Line]:
    """Yield an average, λ and a cell of the embedded encoder."""
    reviews = read_reviews("train").rows.to_pylist()[: extent.reviews]
    table = {name: [review[name] for review in reviews] for name in ("text", "label")}
    half = {name: values[::2] for name, values in table.items()}
    data = {"train": table, "validation": half}
    averages: list[Tensor] = []
    lambdas: list[np.ndarray] = []
    scores: list[float] = []
    for place in ("cpu", device):
        encoder = papa.load_encoder(EMBEDDED, slots=32, device=place)
        averages.append(papa.average(encoder, table["text"], progress=False).matrices.cpu())
        frame = papa.head_scores(
            encoder, data, epochs=1, learning_rate=0.05, ranking_seeds=[0], progress=False
        )
        lambdas.append(frame["score"].to_numpy())
        measurement = papa.measure(
            encoder,
            data,
            orders=["first_to_last"],
            keep=[0.5],
            probe_seeds=[0],
            progress=False,
        )
        scores.append(float(measurement.results["score"].iloc[0]))
    yield difference("averages", averages[1], averages[0], 1e-4, float(averages[0].std()))
    moved = float(np.abs(lambdas[0] - 0.5).max())
    yield difference("λ after an epoch", lambdas[1], lambdas[0], 1e-3, moved)
    # A probe may answer otherwise to a few rows that it is undecided on.
    yield difference("score of a cell", scores[1], scores[0], 0.05, scores[0])


def copied(
    model: GPT2LMHeadModel, device: str, dtype: torch.dtype = torch.float32
) -> GPT2LMHeadModel:
    """Return a copy of a model on a device."""
    # transformers' type of `to` takes no device.
    copy_of_model: Any = copy.deepcopy(model)
    moved: GPT2LMHeadModel = copy_of_model.to(device, dtype)
    return moved


def sweep_lines(device: str, extent: Extent) -> Iterator[Line]:
    """Effects of single heads: in memory, by a study's worker, and in bfloat16."""
    small = random_decoder(Sizes(layers=3, heads=4, width=64))
    ids = random_ids(extent.texts)
    expected = effects_by_papa(small, ids)
    spread = float(expected.std())
    on_device = copied(small, device)
    found = effects_by_papa(on_device, ids.to(device))
    yield difference("sweep in memory", found / spread, expected / spread, 0.01, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        sweep = save_as_study(small, Path(folder))
        store = store_with_inputs(sweep, Path(folder))
        expected = effects_by_workers(sweep, store, Worker("cpu"))
        found = effects_by_workers(sweep, store, Worker(device))
    spread = float(expected.std())
    yield difference("sweep by a worker", found / spread, expected / spread, 0.01, 1.0)
    model = random_decoder(extent.decoder)
    single = copied(model, device)
    half = copied(model, device, torch.bfloat16)
    texts = random_ids(extent.texts, device)
    agreement = np.corrcoef(
        effects_by_papa(half, texts).ravel(), effects_by_papa(single, texts).ravel()
    )[0, 1]
    yield Line("bfloat16: correlation of effects with float32's", f"{agreement:.3f}")
    for name, cast in (("float32", single), ("bfloat16", half)):
        yield from _speed_of_sweep(name, cast, texts, extent.decoder)


def _speed_of_sweep(name: str, model: GPT2LMHeadModel, ids: Tensor, sizes: Sizes) -> Iterator[Line]:
    times = passes_of_one_head(sizes)
    ours = _measured(lambda: effects_by_papa(model, ids))
    plain = _measured(lambda: effects_by_hooks(model, ids, 1))
    heads = f"{sizes.layers} × {sizes.heads} heads, {len(ids)} texts of {TOKENS} tokens"
    yield from _compared(f"sweep in {name}, {heads}", ours, plain, times)


def average_lines(device: str, extent: Extent) -> Iterator[Line]:
    """Yield the average of a model of BERT-base's size, beside summing the model's matrices."""
    batch_texts = 16 if device != "cpu" else 2
    batches = [full_batch(batch_texts, extent.slots) for _ in range(extent.texts // batch_texts)]
    encoder = Encoder(base_sized("eager"), device)
    model: Any = base_sized("eager")
    model.to(device)
    averages: list[Tensor] = []

    @torch.inference_mode()
    def average() -> None:
        averager = AttentionAverager(encoder.layers, encoder.heads, extent.slots, encoder.device)
        encoder.observe(averager.observe, batches)
        averages.append(averager.substitute().matrices.cpu())

    @torch.inference_mode()
    def average_plainly() -> None:
        total = torch.zeros((), device=device)
        for batch in batches:
            total = total + _plain_sums(model, batch, extent.slots)
        averages.append((total / extent.texts).cpu())

    ours = _measured(average)
    plain = _measured(average_plainly)
    found = averages[0].float()
    control = float(found.std())
    yield difference("average of BERT-base's size", found, averages[-1].float(), 1e-3, control)
    what = f"average of BERT-base's size, {extent.texts} texts of {extent.slots} tokens"
    yield from _compared(what, ours, plain, 1.0)


def _plain_sums(model: Any, batch: MicroBatch, slots: int) -> Tensor:
    """Return the sum over texts of all matrices, [layers, heads, slots, slots]."""
    ids = batch.input_ids.view(-1, slots).to(model.device)
    attentions: tuple[Tensor, ...] = model(input_ids=ids, output_attentions=True).attentions
    return torch.stack([matrices.sum(dim=0) for matrices in attentions])


@dataclass(frozen=True)
class _Cost:
    """Seconds, and megabytes of the device at the peak."""

    seconds: float
    megabytes: float


def _measured(work: Callable[[], object]) -> _Cost:
    """Return the shortest of several runs, after one that warms up; memory of a CPU is not
    measured.
    """
    has_gpu = torch.cuda.is_available()

    def run() -> None:
        work()
        if has_gpu:
            torch.cuda.synchronize()

    run()
    if has_gpu:
        torch.cuda.reset_peak_memory_stats()
    shortest = min(seconds(run) for _ in range(REPEATS))
    peak = torch.cuda.max_memory_allocated() / 1e6 if has_gpu else 0.0
    return _Cost(shortest, peak)


def _compared(what: str, ours: _Cost, plain: _Cost, times: float) -> Iterator[Line]:
    """Lines of speed and memory; the plain way was timed on a part, which counts ``times``."""
    plain_seconds = plain.seconds * times
    ratio = plain_seconds / ours.seconds
    yield Line(what, f"{ours.seconds:.3g} s, plainly {plain_seconds:.3g} s: {ratio:.2f} ×")
    if ours.megabytes:
        result = f"{ours.megabytes:.0f} MB, plainly {plain.megabytes:.0f} MB"
        yield Line(f"peak memory: {what}", result)


def main() -> int:
    """Print the table; return 1 if a result is beyond its limit."""
    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    extent = ON_GPU if has_gpu else SMALL
    if has_gpu:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    else:
        print("No GPU: everything runs small on the CPU, and shows nothing of a GPU.\n")
    print("| what | result | limit | |\n|---|---|---|---|", flush=True)
    failures = 0
    for lines_of in (family_lines, encoder_lines, sweep_lines, average_lines):
        for line in lines_of(device, extent):
            verdict = "" if line.is_within else "beyond its limit"
            print(f"| {line.what} | {line.result} | {line.limit} | {verdict} |", flush=True)
            failures += not line.is_within
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
