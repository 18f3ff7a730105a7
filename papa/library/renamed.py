"""Earlier names of keywords: a call with one ends in a sentence that says today's name."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from papa.errors import SpecError

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def formerly(
    **today: str,
) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """Refuse the earlier names of a function's keywords, with today's, and arguments that must be
    named.
    """

    def decorate(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        parameters = inspect.signature(function).parameters.values()
        positional = [
            parameter.name
            for parameter in parameters
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        call = f"papa.{function.__name__}"

        @functools.wraps(function)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
            for name in kwargs:
                if name in today:
                    raise SpecError(f"{call}: the argument '{name}' is now '{today[name]}'")
            if len(args) > len(positional):
                raise SpecError(
                    f"{call} takes {' and '.join(positional)} by position, but got "
                    f"{len(args)} arguments: pass the others by name"
                )
            return function(*args, **kwargs)

        return checked

    return decorate
