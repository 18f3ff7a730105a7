"""Types and shapes in papa's signatures, checked at every call of the tests that start no
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import config, install_import_hook


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """An int is taken for a float, as PEP 484 has it. jaxtyping asks for a check of what a call is
    given, and for one of that and of what it returns: the second need not look at the first again.
    """
    returned = function.__annotations__.get("return", Any)
    if returned is not Any:
        function.__annotations__ = {"return": returned}
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)


def check_signatures() -> None:
    """Check them from here on; to be called before papa is imported."""
    # The hook compiles anew whatever is imported first while a module of papa runs: these are not.
    import transformers.modeling_utils  # noqa: F401

    install_import_hook("papa", f"{__name__}.checked")


def check_calls(wanted: bool) -> None:
    """Whether the signatures are checked from here on: it takes two fifths of a study's time."""
    config.update("jaxtyping_disable", not wanted)
