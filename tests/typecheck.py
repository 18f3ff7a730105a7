"""Types and shapes in papa's signatures, checked at every call of the tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from unittest.mock import patch

from beartype import BeartypeConf, beartype
from jaxtyping import _import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is taken for a float, as PEP 484 has it."""


class _Loader(_import_hook._JaxtypingLoader):
    """Looks for the bytecode of its own module under a name of its own.

    Jaxtyping's does so while the module runs, hence for all that the module imports first: torch, transformers and
    what they need would be compiled anew in every process.
    """

    def get_code(self, fullname: str) -> CodeType | None:
        name = partial(_import_hook._optimized_cache_from_source, self._typechecker.get_hash())
        with patch("importlib._bootstrap_external.cache_from_source", name):
            return SourceFileLoader.get_code(self, fullname)

    def exec_module(self, module: ModuleType) -> None:
        SourceFileLoader.exec_module(self, module)


class _Finder(MetaPathFinder):
    typechecker = _import_hook.Typechecker(f"{__name__}.checked")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "papa":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, typechecker=self.typechecker)
        return spec


def check_signatures() -> None:
    """Check them from here on; to be called before papa is imported."""
    sys.meta_path.insert(0, _Finder())
