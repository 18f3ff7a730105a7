"""What holds every other test to its promises does so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from papa.heads.constants import ConstantMatrices


def test_a_wrong_shape_is_noticed() -> None:
    seen = torch.ones(4, 4, dtype=torch.bool)
    ConstantMatrices(torch.zeros(2, 3, 4, 4), seen, "zeros")
    with pytest.raises(TypeCheckError, match="matrices"):
        ConstantMatrices(torch.zeros(2, 4, 4), seen, "zeros")


def test_an_unmarked_test_starts_no_process() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"starts a process .*mark it with pytest\.mark\.server"
    ):
        subprocess.run(["true"], check=True)


@pytest.mark.server
def test_continuous_integration_runs_its_other_jobs_after_one_that_failed(tmp_path: Path) -> None:
    checkout = Path(__file__).parents[1]
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((checkout / ".ci" / "run").read_text())
    for fails, code in (("test", 1), ("test-integration", 1), ("", 0)):
        lines = [
            f"{job}:\n\t@echo ran {job}; {'false' if job == fails else 'true'}"
            for job in ("test", "test-slow", "test-integration")
        ]
        (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
        done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code
        assert done.stdout.count("ran test") == 3
        assert (f"failed: {fails}\n" in done.stdout) == bool(fails)
