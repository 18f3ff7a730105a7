"""How much fuzzing is done: a little, the same every time, in ``make test-slow``; much, from a
seed, in ``make test-fuzz``.

No example has a deadline: a busy machine would miss it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_ALWAYS = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
LONG_FACTOR = 50
"""How many times as many examples the long form tries."""

settings.register_profile("short", **_ALWAYS, max_examples=18, derandomize=True)
settings.register_profile("long", **_ALWAYS, max_examples=18 * LONG_FACTOR, print_blob=True)
# ``--hypothesis-profile`` replaces it.
settings.load_profile("short")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
