"""Native heads on a worker's device: a study on a GPU scores what it scores on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

from papa.worker import Worker
from tests.finished import described, score_study
from tests.tasks.copier import METRIC, TASK
from tests.virtual_gpu import virtual_gpu

pytestmark = pytest.mark.unchecked

DESIGN: dict[str, object] = {
    "substitutes": ["average", "relative", "zeros"],
    "orders": ["lambda", "effect", "shapley", "gates"],
    "keep": [1, 0.5],
    "ranking_seeds": [0],
    "ranking": {"rows": 8, "epochs": 1, "learning_rate": 0.05, "evaluations": 40},
    "probe_seeds": [0],
}


class GpuWorker(Worker):
    """A worker that has a virtual GPU, which the driver has not; it keeps which models it loads."""

    def __init__(self) -> None:
        super().__init__("cuda")
        self.devices: set[str] = set()
        self.dtypes: set[torch.dtype] = set()

    def run(self, function: Callable[..., Any], **options: Any) -> Any:
        with virtual_gpu():
            result = super().run(function, **options)
        for model in self._last.values():
            self.devices.add(str(model.device))
            self.dtypes |= {parameter.dtype for parameter in model.parameters()}
        return result


def scores_of(
    copier: Path, to: Path, worker: Worker, settings: dict[str, object] | None = None
) -> pandas.DataFrame:
    """The rows of a study of the copying decoder, run by a worker."""
    document = described(copier / "model", {"metric": METRIC, **TASK}) | DESIGN | (settings or {})
    return score_study(document, copier, to, worker).table


@pytest.fixture(scope="module")
def on_cpu(copier: Path, tmp_path_factory: pytest.TempPathFactory) -> pandas.DataFrame:
    return scores_of(copier, tmp_path_factory.mktemp("cpu") / "store", Worker("cpu"))


def test_scores_are_those_of_a_cpu(copier: Path, tmp_path: Path, on_cpu: pandas.DataFrame) -> None:
    worker = GpuWorker()
    on_gpu = scores_of(copier, tmp_path / "store", worker)
    assert worker.devices == {"cuda:0"}
    assert on_gpu["score"].to_numpy() == pytest.approx(on_cpu["score"].to_numpy(), abs=1e-5)
    assert on_cpu["score"].std() > 0.1, "negative control: cells differ"


def test_bfloat16_scores_about_same(copier: Path, tmp_path: Path, on_cpu: pandas.DataFrame) -> None:
    worker = GpuWorker()
    half = {"precision": "bfloat16", "orders": ["first_to_last"]}
    on_gpu = scores_of(copier, tmp_path / "store", worker, half)
    assert worker.dtypes == {torch.bfloat16}
    expected = on_cpu[on_cpu["fraction"] == 1]["score"].mean()
    measured = on_gpu[on_gpu["fraction"] == 1]["score"].mean()
    assert measured == pytest.approx(expected, abs=0.05)
