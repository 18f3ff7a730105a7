"""What holds every other test to its promises does so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float, TypeCheckError, config, jaxtyped
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from tests.typecheck import checked


def test_a_wrong_shape_is_noticed() -> None:
    seen = torch.ones(4, 4, dtype=torch.bool)
    ConstantMatrices(torch.zeros(2, 3, 4, 4), seen, "zeros")
    with pytest.raises(TypeCheckError, match="matrices"):
        ConstantMatrices(torch.zeros(2, 4, 4), seen, "zeros")
    with pytest.raises(TypeCheckError, match="seen"):
        ConstantMatrices(torch.zeros(2, 3, 4, 4), seen[:3], "zeros")


def test_what_is_returned_has_the_shape_that_the_arguments_gave() -> None:
    @jaxtyped(typechecker=checked)
    def turned(x: Float[Tensor, "a b"], as_said: bool) -> Float[Tensor, "b a"]:
        return x.T if as_said else x

    turned(torch.zeros(2, 3), True)
    with pytest.raises(TypeCheckError, match="return value"):
        turned(torch.zeros(2, 3), False)


def test_other_packages_are_imported_from_their_own_bytecode() -> None:
    """Under a name of the type check's they have none, and would be compiled anew in
    every process.
    """
    import papa.encoders.encoder  # noqa: F401

    assert "jaxtyping" not in sys.modules["transformers.modeling_utils"].__cached__


def test_an_unmarked_test_starts_no_process() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"starts a process .*mark it with pytest\.mark\.server"
    ):
        subprocess.run(["true"], check=True)


@pytest.mark.server
def test_a_marked_one_may_and_its_signatures_are_not_checked() -> None:
    subprocess.run(["true"], check=True)
    assert config.jaxtyping_disable


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
