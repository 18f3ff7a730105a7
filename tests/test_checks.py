"""What holds every other test to its promises does so."""

import subprocess

import pytest
import torch
from jaxtyping import TypeCheckError

from papa.heads.constants import ConstantMatrices


def test_a_wrong_shape_is_noticed() -> None:
    visible = torch.ones(4, 4, dtype=torch.bool)
    ConstantMatrices(torch.zeros(2, 3, 4, 4), visible, "zeros")
    with pytest.raises(TypeCheckError, match="matrices"):
        ConstantMatrices(torch.zeros(2, 4, 4), visible, "zeros")


def test_an_unmarked_test_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"pytest\.mark\.server"):
        subprocess.run(["true"], check=True)
