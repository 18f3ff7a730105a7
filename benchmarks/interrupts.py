"""``python -m benchmarks.interrupts``: how long Ctrl-C takes to be answered, and to end everything,
in each phase.

A study of minutes on the embedded encoder is begun, interrupted two seconds into a phase, and begun
again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.document import table
from papa.encoders.reference import EMBEDDED
from papa.spec.document import write_yaml

STUDY: dict[str, Any] = {
    "name": "interrupted",
    "encoders": [EMBEDDED],
    "tasks": [{"name": "reviews", "train_rows": 4000}],
    "fractions": [1, 0.5],
    "ranking": {"epochs": 1, "seeds": [0]},
}
PHASES = {"start-up": "", "averaging": "average · ", "λ": "rank · ", "probing": "probe · "}
"""How the line of progress begins that says so."""
INSIDE = 2.0


def interrupted(begins: str, study: Path, store: Path) -> Iterator[float]:
    """Seconds from Ctrl-C to the sentence, and to the command's end."""
    command = [str(Path(sys.executable).parent / "papa"), "run", str(study), "--store", str(store)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        if begins:
            next(line for line in process.stderr if line.startswith(begins) and "started" in line)
        time.sleep(INSIDE)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        next(line for line in process.stderr if line.startswith("interrupted"))
        yield time.monotonic() - sent
        process.stderr.read()
        assert process.wait() == 128 + signal.SIGINT
        yield time.monotonic() - sent


def main() -> None:
    """Print a table."""
    # A shell's background job is started with it ignored, and the command would be, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.yaml"
        study.write_text(write_yaml(STUDY))
        for phase, begins in PHASES.items():
            answered, ended = interrupted(begins, study, Path(folder) / "store")
            rows.append([phase, f"{answered:.2f} s", f"{ended:.2f} s"])
    print(table(("phase", "answered after", "ended after"), rows))


if __name__ == "__main__":
    main()
