"""What studies run on, as if it were not installed: in a process that imports this first."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder

_ABSENT = {"prefect", "ray", "mlflow", "fastapi", "sqlalchemy", "alembic"}


class _Without(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        absent = fullname.partition(".")[0] in _ABSENT
        return None if absent else PathFinder.find_spec(fullname, path)

    @classmethod
    def find_distributions(  # type: ignore[override]
        cls, context: DistributionFinder.Context
    ) -> Iterable[Distribution]:
        found = PathFinder.find_distributions(context)
        return (one for one in found if one.name.lower() not in _ABSENT)


sys.meta_path[sys.meta_path.index(PathFinder)] = _Without
