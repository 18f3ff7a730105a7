"""What a report says of the run that writes it."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import psutil

from papa.credentials import without_credentials

_COMPUTING = ("papa-attention", "torch", "transformers", "datasets", "numpy", "scikit-learn")


def provenance(
    run: tuple[str, float], computing: float, digests: Mapping[str, str]
) -> dict[str, str]:
    """When and how results were made; ``run`` is the command line and when it began."""
    command, started = run
    return {
        "Date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "Command": command,
        "Machine": _machine(),
        "Duration of this run": str(timedelta(seconds=round(time.time() - started))),
        "Computing time of all steps": str(timedelta(seconds=round(computing))),
        "Versions": ", ".join(f"{name} {version(name)}" for name in _COMPUTING),
        **digests,
    }


def command_line(arguments: list[str]) -> str:
    """A command line as one would type it: the program by name, and no password."""
    program, *others = arguments
    return without_credentials(shlex.join([Path(program).name, *others]))


def _machine() -> str:
    """``Linux x86_64, Intel(R) Xeon(R), 16 cores, 64 GiB, NVIDIA H100``."""
    import torch

    processor = platform.processor()
    with suppress(OSError, IndexError):
        processor = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[0]
    memory = f"{round(psutil.virtual_memory().total / 2**30)} GiB"
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    system, cores = f"{platform.system()} {platform.machine()}", f"{psutil.cpu_count()} cores"
    return ", ".join(filter(None, [system, processor, cores, memory, *gpus]))
