"""Types and shapes in papa's signatures, checked at every call of the tests that start no
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import config, install_import_hook, jaxtyped


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """An int is taken for a float, as PEP 484 has it. jaxtyping asks for a check of what a call is
    given, and for one of that and of what it returns: the second need not look at the first again.
    """
    returned = function.__annotations__.get("return", Any)
    if returned is not Any:
        function.__annotations__ = {"return": returned}
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)


def where_wanted(typechecker: object) -> Callable[[Any], Any]:
    """``jaxtyped``, but that a function made in a call whose signature is not checked is left as it
    is: to wrap it takes as long as some of a study's steps.
    """
    wrapped = jaxtyped(typechecker=typechecker)

    def of(one: Any) -> Any:
        inner = "<locals>" in getattr(one, "__qualname__", "")
        return one if inner and config.jaxtyping_disable else wrapped(one)

    return of


def check_signatures() -> None:
    """Check them from here on; to be called before papa is imported."""
    # The hook compiles anew whatever is imported first while a module of papa runs: these are not.
    import transformers.modeling_utils  # noqa: F401

    jaxtyping.jaxtyped = where_wanted  # What the hook writes before every function.
    install_import_hook("papa", f"{__name__}.checked")


def check_calls(wanted: bool) -> None:
    """Whether the signatures are checked from here on: it takes two fifths of a study's time."""
    config.update("jaxtyping_disable", not wanted)
