"""Peak memory of a whole process that averages, at BERT-base's size, S=256; and with ten times the text."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Measured

LIMIT_MB = 2000


def averaged(inputs: int) -> float:
    """Average ``inputs`` full-length random inputs in this process; returns its peak memory in MB."""
    import torch

    from benchmarks.setting import base_sized
    from papa.attention.averager import averaging
    from papa.corpora.batches import CompactBatch
    from papa.encoders.encoder import Encoder

    slots, size = 256, 8
    mask = torch.ones(size, slots, dtype=torch.bool)
    encoder = Encoder(base_sized("eager"))
    with torch.inference_mode(), averaging(encoder, slots) as averager:
        for _ in range(inputs // size):
            ids = torch.randint(5, 1000, (size, slots))
            encoder.observe(CompactBatch(torch.arange(size), torch.arange(slots), ids, mask, torch.zeros_like(ids)))
        averager.result()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_its_own_process(inputs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", str(inputs)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def memory_rows() -> Iterator[Measured]:
    """Peak megabytes against the limit, and against a tenth of the text."""
    small, large = _in_its_own_process(16), _in_its_own_process(160)
    yield Measured("memory of averaging, BERT-base size, S=256", large, LIMIT_MB, LIMIT_MB / large, 1.0, unit="MB")
    yield Measured("memory with ten times the text", large, small, small / large, 1 / 1.05, unit="MB")


if __name__ == "__main__":
    print(averaged(int(sys.argv[1])))
