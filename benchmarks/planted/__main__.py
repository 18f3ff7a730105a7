"""``python -m benchmarks.planted``: which score of heads finds the heads that a model needs.

Trains models in which the needed heads are known, scores all heads by every method with every
substitute, and prints AUROC by kind of output. If all kinds are asked for, it writes
``measured.csv``, ``measured.md`` and the table of docs/how-to/which-method.md.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pandas

from benchmarks.planted.kinds import kinds
from benchmarks.planted.scores import ScoredModel, train_and_score
from benchmarks.planted.tables import RESULTS, all_tables, write_tables
from benchmarks.planted.training import ModelRequest
from papa.resources import usable_cores


def main() -> int:
    """Train, score, print the tables, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="models of each kind and size")
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
    print(all_tables(pandas.DataFrame(results)))
    if not options.kinds:
        write_tables()
    return 0


if __name__ == "__main__":
    sys.exit(main())
