"""What PAPA holds: a million inputs, one very long row, eight studies at once, two thousand cells.

``python -m benchmarks.load NAME…`` runs some of them, or all, in this order, and prints what each
took as JSON:

- million: short inputs averaged by a small random encoder, memory with 1,000,000 against 100,000;
- long: time and memory of the stages on short rows, with one row of the encoder's longest length
  against without;
- studies: eight at once, two of them with cells to compute, on one Prefect server, one MLflow
  server, one store;
- cells: a study of 2,000 cells on workers that wait (``benchmarks.scale``); how fast both servers
  answer meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.memory import own_memory
from benchmarks.shared_servers import cells, studies

WORDS = (
    "the",
    "a",
    "movie",
    "story",
    "film",
    "good",
    "bad",
    "very",
    "long",
    "short",
    "and",
    "or",
    "not",
    "people",
)
INPUTS, TENTH = 1_000_000, 100_000
SHORT_ROWS, LONGEST, TURNS = 1_000, 512, 2


def tokenised(rows: int, slots: int, folder: Path, *, longest: bool = False) -> Any:
    """A task of rows of three to eight words, one row filling every slot if ``longest``, and its
    tokenised corpus.
    """
    from papa.corpora.corpus import load_corpus, tokenise_corpus
    from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
    from papa.spec import EncoderSpec, LayoutSpec
    from papa.spec.file import resolve_study

    drawn = random.Random(0)
    for split, count in (("train", rows), ("validation", 64)):
        with (folder / f"{split}.jsonl").open("w") as file:
            for row in range(count):
                words = slots if longest and row == rows // 2 else drawn.randint(3, 8)
                file.write(
                    json.dumps({"text": " ".join(drawn.choices(WORDS, k=words)), "label": row % 2})
                    + "\n"
                )
    source = {
        "kind": "files",
        "train": str(folder / "train.jsonl"),
        "validation": str(folder / "validation.jsonl"),
    }
    probe = {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1}
    task: dict[str, Any] = {
        "name": "short",
        "kind": "text",
        "source": source,
        "slots": slots,
        "probe": probe,
    }
    task |= {"columns": {"text": "text", "label": "label"}, "metric": "accuracy"}
    document = {"name": "load", "encoders": [EMBEDDED], "tasks": [task]}
    spec = resolve_study(document, folder=folder, origin="benchmarks").tasks[0]
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    corpus = tokenise_corpus(
        spec,
        LayoutSpec(),
        load_tokenizer(reference),
        reference,
        folder / "corpus",
        shard_rows=20_000,
    )
    return spec, load_corpus(Path(corpus))


def averaged(rows: int, folder: Path) -> dict[str, float]:
    """Peaks of own memory in MB while so many rows are tokenised, and while they are averaged shard
    by shard.
    """
    from transformers import BertConfig, BertModel

    from papa.attention.average import average_split
    from papa.encoders.encoder import Encoder

    with own_memory() as peak:
        task, corpus = tokenised(rows, 16, folder)
        found = {"tokenising MB": peak()}
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "attn_implementation": "eager",
    }
    configuration = BertConfig(num_hidden_layers=2, num_attention_heads=2, **sizes)
    model = BertModel(configuration, add_pooling_layer=False).eval().requires_grad_(False)
    encoder, split, total = Encoder(model), corpus.split("train"), None
    with own_memory() as peak:
        for index in range(len(split.shards)):
            sums = average_split(encoder, split.shard(index), slots=task.slots, batch_tokens=2048)
            if total is None:
                total = sums
            else:
                total.merge(sums)
        assert total is not None
        assert total.counts[0, 0] == rows, "every input has a token in slot 0"
        total.average()
        return {**found, "averaging MB": peak(), "CPU s": cpu()}


def stages(longest: int, folder: Path) -> dict[str, float]:
    """CPU seconds of each stage on short rows in 512 slots, and the peak of own memory in MB."""
    from benchmarks.setting import encoder
    from papa.attention.average import average_split
    from papa.probes.evaluate import evaluate_cell
    from papa.ranking.learned import train_lambda
    from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec

    task, corpus = tokenised(SHORT_ROWS, LONGEST, folder, longest=bool(longest))
    model, split, found = encoder(), corpus.split("train"), {}
    assert (split.lengths.max() == LONGEST) == bool(longest)
    with own_memory() as peak:
        begun = cpu()
        sums = average_split(model, split, slots=LONGEST, batch_tokens=model.tokens_per_batch(None))
        found["average CPU s"] = cpu() - begun
        begun, constants = cpu(), sums.average()
        train_lambda(model, constants, corpus, task, RankingSpec(epochs=1))
        found["λ CPU s"] = cpu() - begun
        begun, execution = cpu(), ExecutionSpec()
        evaluate_cell(
            model, corpus, task, (0,), features=FeaturesSpec(), execution=execution, scratch=folder
        )
        found["probe CPU s"] = cpu() - begun
        return {**found, "MB": peak()}


def cpu() -> float:
    """Seconds of processors that this process used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def alone(name: str, argument: int) -> dict[str, float]:
    """What one of the two above finds in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.load", "--alone", name, str(argument), folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(name, argument, done.stdout.splitlines()[-1], file=sys.stderr, flush=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def million(folder: Path) -> dict[str, Any]:
    """A million inputs against a tenth of them."""
    return {f"{rows:,} inputs": alone("averaged", rows) for rows in (TENTH, INPUTS)}


def long(folder: Path) -> dict[str, Any]:
    """With the long row against without, in turn; the least of each."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(TURNS):
        for longest, taken in found.items():
            taken.append(alone("stages", int(longest)))
    least = {
        longest: {of: min(seconds[of] for seconds in taken) for of in taken[0]}
        for longest, taken in found.items()
    }
    return {
        "without": least[False],
        "with": least[True],
        "ratio": {of: least[True][of] / least[False][of] for of in least[True]},
    }


LOADS = {"million": million, "long": long, "studies": studies, "cells": cells}


def main() -> None:
    """Run the loads that are named, each in a folder of its own."""
    if sys.argv[1:2] == ["--alone"]:
        name, argument, folder = sys.argv[2:]
        found = (
            averaged(int(argument), Path(folder))
            if name == "averaged"
            else stages(argument == "True", Path(folder))
        )
        print(json.dumps(found))
        return
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*LOADS, []], default=[])
    for name in parser.parse_args().names or LOADS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print(json.dumps({name: LOADS[name](Path(folder))}, indent=1), flush=True)


if __name__ == "__main__":
    main()
