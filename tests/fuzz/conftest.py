"""How much fuzzing is done: a little, the same every time, in ``make test-slow``; much, from a
seed, in ``make test-fuzz``.

No example has a deadline: a busy machine would miss it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_ALWAYS = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

settings.register_profile("short", **_ALWAYS, max_examples=72, derandomize=True)
settings.register_profile("long", **_ALWAYS, max_examples=3600, print_blob=True)
# ``--hypothesis-profile`` replaces it.
settings.load_profile("short")
