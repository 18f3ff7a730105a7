"""What engines may print into a command's output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.server
def test_a_cut_line_to_prefect_leaves_no_traceback(tmp_path: Path) -> None:
    source = (
        "import logging, sys\n"
        "from flows.environment import prepare_environment\n"
        "from papa.study.store import Store\n"
        f"prepare_environment(Store({str(tmp_path / 'store')!r}), verbose=sys.argv[1] == "
        "'verbose')\n"
        "import prefect\n"
        "logging.getLogger('websockets.client').error('keepalive ping failed')\n"
    )
    for word, told in (("quiet", False), ("verbose", True)):
        done = subprocess.run(
            [sys.executable, "-c", source, word], capture_output=True, text=True, check=True
        )
        assert ("keepalive ping failed" in done.stdout + done.stderr) == told
