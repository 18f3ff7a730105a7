"""``python -m benchmarks.planted``: which score of heads finds the heads that a model needs.

Trains models in which the needed heads are known, scores all heads by every method with every
substitute, prints AUROC by kind of output, and writes ``measured.csv`` if all kinds are asked for.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas

from benchmarks.planted.kinds import kinds
from benchmarks.planted.scores import ScoredModel, train_and_score
from benchmarks.planted.tables import table
from benchmarks.planted.training import ModelRequest
from papa.resources import usable_cores

RESULTS = Path(__file__).with_name("measured.csv")


def main() -> int:
    """Train, score, print the table, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="models of each kind and size")
    parser.add_argument("--layers", type=int, nargs="*", default=[2], help="sizes of models")
    parser.add_argument("--kinds", nargs="*", default=[], help="kinds to train (default: all)")
    options = parser.parse_args()
    requests = [
        ModelRequest(kind.name, layers, seed)
        for seed in range(options.seeds)
        for layers in options.layers
        for kind in kinds(layers)
        if not options.kinds or kind.name in options.kinds
    ]
    results: list[ScoredModel] = []
    with ProcessPoolExecutor(usable_cores(), mp_context=get_context("spawn")) as pool:
        for scores in pool.map(train_and_score, requests):
            results += scores
            if not options.kinds:
                pandas.DataFrame(results).round(4).to_csv(RESULTS, index=False)
    print(table(pandas.DataFrame(results), "output"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
