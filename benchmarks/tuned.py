"""What fine-tuning wins back of an export's score, on reviews with MiniLM: ``python -m
benchmarks.tuned``.

Every head is constant, or a single one: what the latter wins is fine-tuning's own, whatever the
constant heads cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from flows.retrained import FinishedCell, trained_probe

import papa
from papa.attention.constants import ConstantMatrices
from papa.corpora import load_corpus
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import special_tokens_of
from papa.encoders.reference import load_tokenizer
from papa.exporting import InputLayout, export_encoder
from papa.exporting.placement import ordinary_inputs
from papa.progress import Bars
from papa.scores.intervals import Interval, Measured, difference, joint
from papa.scores.metrics import Scored, scored
from papa.spec.cells import Cell
from papa.spec.file import resolve_study
from papa.study.here import run_here
from papa.study.probe import Probe, read_scores
from papa.study.store import Store
from papa.study.stored import StoredStudy
from papa.study.tokenise import open_corpus

BATCH, RATE, LIMIT = 16, 5e-5, 1.0
"""Texts in a step, AdamW's first learning rate, which falls to 0, and the largest gradient norm."""
ONE_HEAD = round(1 - 1 / 72, 6)


def tune(
    model: papa.ExportedEncoder, split: TokenisedSplit, steps: int, seed: int
) -> papa.ExportedEncoder:
    """Train all weights of an export and of its classifier on drawn rows; in place."""
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    drawn = np.random.default_rng(seed)
    for _ in range(steps):
        rows = np.sort(drawn.choice(split.rows, BATCH, replace=False))
        logits = model(**ordinary_inputs(split, rows, model.layout)).logits
        F.cross_entropy(logits, torch.from_numpy(split.labels_of(rows))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.requires_grad_(False)


@torch.inference_mode()
def accuracy(model: papa.ExportedEncoder, split: TokenisedSplit) -> Scored:
    """Of the classifier, on all rows."""
    parts = np.array_split(split.rows, -(-len(split) // 64))
    answers = [
        model(**ordinary_inputs(split, part, model.layout)).logits.argmax(-1).numpy()
        for part in parts
    ]
    return scored("accuracy", np.concatenate(answers), split.labels)


def measured(found: dict[int, Scored]) -> Measured:
    """Of the seeds' scores."""
    scores = {seed: of_seed.score for seed, of_seed in found.items()}
    return Measured.of("accuracy", scores, [of_seed.examples for of_seed in found.values()])


def write_export(stored: StoredStudy, cell: Cell, folder: Path) -> TokenisedSplit:
    """Write a finished cell as a folder, without timing it; its training rows."""
    (step,) = stored.steps.cells[cell]
    assert isinstance(step, Probe)
    assert step.constants is not None
    corpus = open_corpus(stored.found[step.corpus])
    constants = ConstantMatrices.load(
        stored.found[step.constants].folder, encoder=step.encoder, slots=step.task.slots
    )
    heads = read_scores(stored.found[step].folder).constant_heads
    layout = InputLayout.of(
        step.task.kind,
        step.task.slots,
        stored.inputs.study.layout,
        special_tokens_of(load_tokenizer(step.encoder)),
    )
    probe = trained_probe(
        FinishedCell(stored, cell, step, corpus, constants, heads), "cpu", _Quiet()
    )
    export_encoder(step.encoder, constants, heads, layout, folder, classifier=probe)
    return corpus.split("train")


class _Quiet:
    def update(self, _: str) -> None:
        """Say nothing."""


def run(rows: int, validation: int, steps: int, seeds: Sequence[int]) -> str:
    """The table: before, after, and the gain, each with its interval over seeds and texts."""
    study = resolve_study(
        {
            "name": "tuned",
            "encoders": ["embedded/all-MiniLM-L6-v2"],
            "tasks": [
                {"name": "reviews", "slots": 32, "train_rows": rows, "validation_rows": validation}
            ],
            "orders": ["first_to_last"],
            "fractions": [ONE_HEAD, 0],
            "seeds": [0],
        },
        folder=Path.cwd(),
        origin="benchmarks.tuned",
    )
    lines = ["| Constant heads | before | after | gain |", "| --- | --- | --- | --- |"]
    with TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "store")
        store.make()
        run_here(
            StoredStudy(study, store).steps.steps[:-1], store, study.execution, Bars(shown=False)
        )
        stored = StoredStudy(study, store)
        for cell in stored.steps.cells:
            folder = Path(scratch) / f"{cell.fraction}"
            train = write_export(stored, cell, folder)
            (step,) = stored.steps.cells[cell]
            split = load_corpus(stored.found[step.corpus].folder).split("validation")
            before = accuracy(papa.load_exported(folder), split)
            after = {
                seed: accuracy(tune(papa.load_exported(folder), train, steps, seed), split)
                for seed in seeds
            }
            first, then = measured(dict.fromkeys(seeds, before)), measured(after)
            cells = [
                _written(interval)
                for interval in (joint(first), joint(then), difference(then, first))
            ]
            heads = read_scores(stored.found[step].folder).constant_heads
            lines.append(f"| {len(heads)} of 72 | {' | '.join(cells)} |")
    return "\n".join(lines)


def _written(found: Interval) -> str:
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--validation", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(run(given.rows, given.validation, given.steps, range(given.seeds)))


if __name__ == "__main__":
    main()
