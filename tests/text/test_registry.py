"""Every task known by name is a whole task, with the paper's settings where the paper has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from papa.spec import HubSource
from papa.spec.file import registry
from tests.text.conftest import known_task

PAPER = {
    "cola": ("matthews", 64, 2e-5, 16, 15),
    "sst2": ("accuracy", 64, 1e-4, 32, 4),
    "mnli": ("accuracy", 256, 2e-4, 8, 4),
    "mrpc": ("f1", 128, 2e-5, 16, 15),
    "ner": ("entity_f1", 128, 1e-4, 8, 4),
    "pos": ("token_f1", 128, 5e-4, 8, 4),
    "mlm": ("negative_log_perplexity", 128, 5e-4, 8, 2),
}
OTHERS = {"rte", "qnli", "qqp", "stsb", "wnut17", "ud_pos", "reviews"}


@pytest.mark.parametrize("name", sorted({*registry(), *PAPER, *OTHERS}))
def test_every_entry_is_a_whole_task_with_the_papers_settings(name: str) -> None:
    task = known_task(name)
    probe = task.probe
    found = (task.metric, task.slots, probe.learning_rate, probe.batch_size, probe.epochs)
    assert (task.name, found) == (name, found if name in OTHERS else PAPER[name])
    if isinstance(task.source, HubSource):
        assert "/" in task.source.name, "hub names without an owner no longer resolve"
        mismatched = task.source.validation == "validation_mismatched"
        assert mismatched == (name == "mnli")


@pytest.mark.server
@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("papa.text.corpus", {"torch", "transformers", "datasets", "huggingface_hub"}),
        ("papa.spec.file, papa.ranking.orders", {"torch"}),
    ],
)
def test_a_plan_starts_without_what_is_heavy(modules: str, heavy: set[str]) -> None:
    program = f"import sys, {modules}; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
