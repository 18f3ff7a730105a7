"""Types and shapes in papa's signatures, checked at every call of the tests."""

from __future__ import annotations

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is taken for a float, as PEP 484 has it."""


def check_signatures() -> None:
    """Check them from here on; to be called before papa is imported."""
    # The hook compiles anew whatever is imported first while a module of papa runs: these are not.
    import transformers  # noqa: F401

    install_import_hook("papa", f"{__name__}.checked")
