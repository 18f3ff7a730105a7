"""``python -m benchmarks.precision``: scores, head orders and time of the embedded encoder in
float32 and bfloat16.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from scipy.stats import kendalltau

from benchmarks.document import put, table
from benchmarks.setting import TITLES as TEXTS
from benchmarks.setting import Setting, setting
from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.precision import check_precision
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.probes.evaluate import evaluate_cell
from papa.ranking.learned import train_lambda
from papa.scores.intervals import Measured, interval, paired_drop
from papa.spec import EncoderSpec, ExecutionSpec, FeaturesSpec, Precision, RankingSpec
from papa.spec.orders import Head, head_order

SEEDS = (0, 1, 2)
ROWS = {"cola": (3000, 400), "rte": (300, 200), "ud": (150, 150), "wnut": (300, 300)}
"""Training and validation rows."""
EPOCHS = 1
"""For λ."""
SCORES = ("all heads: seeds", "no head: seeds", "drop", "τ")
TITLES = ("task", "metric", "precision", *SCORES, "CPU time", "speed-up")
HALF: Precision = "bfloat16"


@dataclass(frozen=True)
class Found:
    """A small study in one precision: scores with every head input-dependent and with none, heads
    by λ, and one core's seconds for the average, λ and both cells.
    """

    full: Measured
    none: Measured
    order: list[Head]
    seconds: float

    def drop(self) -> str:
        """The relative drop with its interval."""
        found = paired_drop(self.full, self.none)
        return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def loaded(precision: Precision) -> Encoder:
    """The embedded encoder."""
    return load_encoder(replace(resolve_encoder(EncoderSpec(name=EMBEDDED)), precision=precision))


def study(encoder: Encoder, text: Setting, folder: Path) -> Found:
    """Average, λ, and the cells with all heads and with none."""
    started = time.process_time()
    constants = averaged(encoder, text)
    order = ranked(encoder, constants, text, seed=0)
    full = scores(encoder, text, folder)
    with replaced(encoder, constants, order):
        none = scores(encoder, text, folder)
    return Found(full, none, order, time.process_time() - started)


def averaged(encoder: Encoder, text: Setting) -> ConstantMatrices:
    """Of the training text."""
    split, tokens = text.corpus.split("train"), encoder.tokens_per_batch(None)
    return average_split(encoder, split, slots=text.task.slots, batch_tokens=tokens).average()


def ranked(
    encoder: Encoder, constants: ConstantMatrices, text: Setting, *, seed: int
) -> list[Head]:
    """Heads by λ, ascending."""
    lambdas = train_lambda(
        encoder, constants, text.corpus, text.task, RankingSpec(epochs=EPOCHS), seed=seed
    )
    return list(head_order("lambda", lambdas[-1], encoder.layers, encoder.heads))


def scores(encoder: Encoder, text: Setting, folder: Path) -> Measured:
    """Of every seed."""
    options: dict[str, Any] = {
        "features": FeaturesSpec(),
        "execution": ExecutionSpec(),
        "scratch": folder,
    }
    found = evaluate_cell(encoder, text.corpus, text.task, SEEDS, **options)
    by_seed = {scored.seed: scored.score for scored in found}
    return Measured.of(text.task.metric, by_seed, [scored.examples for scored in found])


def tau(first: Sequence[Head], other: Sequence[Head]) -> float:
    """Kendall's τ of two orders of the same heads."""
    places = {head: position for position, head in enumerate(first)}
    return float(kendalltau([places[head] for head in other], range(len(other))).statistic)


def beyond(name: str, text: Setting, full: Measured, half: Measured) -> Iterator[str]:
    """A sentence where the mean in half precision lies outside the interval over seeds
    in float32.
    """
    expected, found = (interval(list(measured.scores.values())) for measured in (full, half))
    if not expected.low <= found.mean <= expected.high:
        yield (
            f"{text.task.name}, {name}: {found.mean:.4f} in {HALF} is outside the seeds' interval "
            f"in float32, {expected.low:.4f} to {expected.high:.4f}."
        )


def rows(folder: Path, remarks: list[str]) -> Iterator[list[str]]:
    """Two rows a task; what lies beyond the seeds' interval is added to ``remarks``."""
    encoders = {precision: loaded(precision) for precision in get_args(Precision)}
    for name, (train, validation) in ROWS.items():
        text = setting(name, train, folder, validation=validation)
        found = {precision: study(encoder, text, folder) for precision, encoder in encoders.items()}
        full, half = found["float32"], found[HALF]
        other = ranked(encoders["float32"], averaged(encoders["float32"], text), text, seed=1)
        taus = {
            "float32": f"{tau(full.order, other):.2f} to another seed",
            HALF: f"{tau(full.order, half.order):.2f}",
        }
        for precision, result in found.items():
            yield [
                f"{TEXTS[name]}, {train:,} rows",
                text.task.metric,
                precision,
                " ".join(f"{score:.4f}" for score in result.full.scores.values()),
                " ".join(f"{score:.4f}" for score in result.none.scores.values()),
                result.drop(),
                taus[precision],
                f"{result.seconds:.1f} s",
                f"{full.seconds / result.seconds:.2f}",
            ]
        remarks += [
            *beyond("all heads", text, full.full, half.full),
            *beyond("no head", text, full.none, half.none),
        ]


def main() -> None:
    """Measure, print, and put the table into ``measured.md``."""
    check_precision(HALF, "cpu")
    torch.set_num_threads(1)
    remarks: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        text = table(TITLES, rows(Path(folder), remarks))
    said = " ".join(remarks) or "No mean in bfloat16 lies outside the seeds' interval in float32."
    put("precision", f"{text}\n\n{said}")
    print(text, said, sep="\n\n")


if __name__ == "__main__":
    main()
