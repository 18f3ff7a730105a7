"""Code of the user's own by the name that a study has for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from papa.errors import SpecError, in_one_line, meant


@dataclass(frozen=True)
class Named:
    """Code that a study names. The text of its file goes to the workers with the step that needs
    it, and is run where it is called first, as no module that anything else could import.

    Attributes:
        name: ``module:name``.
        digest: of the text.
        text: None where the command line did not give the file; the code can be known then, not
            run.
    """

    name: str
    digest: str
    text: str | None

    def load(self) -> Any:
        """What the file defines under the name.

        Raises:
            SpecError: the file was not given, fails, or defines no such name.
        """
        module, _, name = self.name.partition(":")
        if self.text is None:
            raise SpecError(not_given(self.name))
        found = vars(_ran(module, self.text))
        if name not in found:
            raise SpecError(
                f"{self.name}: {module}.py defines no {name}{meant(name, found)}: correct one of "
                "them"
            )
        return found[name]

    def __call__(self, *given: Any) -> Any:
        return self.load()(*given)


@lru_cache(maxsize=16)
def _ran(module: str, text: str) -> ModuleType:
    """A file's text, run once in a process."""
    found = ModuleType(module)
    try:
        exec(compile(text, f"{module}.py", "exec", dont_inherit=True), vars(found))
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {in_one_line(Exception(error))}"
        raise SpecError(
            f"--code {module}.py fails ({why}): correct it; it may import what is installed, "
            "and no file beside it"
        ) from error
    return found


def loaded(code: Any) -> Any:
    """Code of the user's own as it is, also where a study names it."""
    return code.load() if isinstance(code, Named) else code


def not_given(name: str) -> str:
    """That a study names code whose file nobody gave, and what to do."""
    return (
        f"the study names {name}, code of your own, which is run only from a file that the command "
        f"line gives: add --code {name.partition(':')[0]}.py to papa run, check or plan"
    )
