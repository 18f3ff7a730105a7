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
from typing import TYPE_CHECKING, Any

from benchmarks.memory import own_memory
from benchmarks.shared_servers import cells, studies

if TYPE_CHECKING:
    from benchmarks.setting import Setting

WORDS = "the a movie story film good bad very long short and or not people"
INPUTS, TENTH = 1_000_000, 100_000
SHORT_ROWS, LONGEST, TURNS = 1_000, 512, 2


def tokenised(rows: int, slots: int, folder: Path, *, longest: bool = False) -> Setting:
    """Rows of three to eight words, one row filling every slot if ``longest``, tokenised."""
    from benchmarks.setting import setting

    drawn, file = random.Random(0), folder / "rows.jsonl"
    with file.open("w") as writing:
        for row in range(rows):
            words = slots if longest and row == rows // 2 else drawn.randint(3, 8)
            text = " ".join(drawn.choices(WORDS.split(), k=words))
            writing.write(json.dumps({"sentence": text, "label": row % 2}) + "\n")
    options = {"validation": 64, "slots": slots, "shard_rows": 20_000}
    return setting("cola", rows, folder, file=file, **options)


def averaged(rows: int, folder: Path) -> dict[str, float]:
    """Peaks of own memory in MB while so many rows are tokenised, and while they are averaged shard
    by shard.
    """
    from transformers import BertConfig, BertModel

    from papa.attention.average import average_split
    from papa.encoders.encoder import Encoder

    with own_memory() as peak:
        text = tokenised(rows, 16, folder)
        found = {"tokenising MB": peak()}
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "attn_implementation": "eager",
    }
    configuration = BertConfig(num_hidden_layers=2, num_attention_heads=2, **sizes)
    model = BertModel(configuration, add_pooling_layer=False).eval().requires_grad_(False)
    encoder, split, total = Encoder(model), text.corpus.split("train"), None
    slots = text.task.slots
    with own_memory() as peak:
        for index in range(len(split.shards)):
            sums = average_split(encoder, split.shard(index), slots=slots, batch_tokens=2048)
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

    text = tokenised(SHORT_ROWS, LONGEST, folder, longest=bool(longest))
    model, corpus, task, found = encoder(), text.corpus, text.task, {}
    split = corpus.split("train")
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
        found = {"averaged": averaged, "stages": stages}[name](int(argument), Path(folder))
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
