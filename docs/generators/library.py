"""The reference of the library, as Markdown: what ``import papa`` offers, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import griffe

import papa
import papa.library

_HEAD = """# Library

Look up every public function and class of `import papa`; everything else is private.
[The guide](../library.md) shows the calls at work.
"""
_WIDTH = 80
"""Characters of a line of code that a page shows without scrolling."""
_LISTS = {
    griffe.DocstringSectionParameters: "Parameters",
    griffe.DocstringSectionAttributes: "Attributes",
    griffe.DocstringSectionReturns: "Returns",
    griffe.DocstringSectionYields: "Yields",
    griffe.DocstringSectionRaises: "Raises",
}


def library_page() -> str:
    """Return the page: what holds for all calls, then functions, then classes."""
    functions = sorted(name for name in papa.__all__ if name[0].islower())
    classes = sorted(name for name in papa.__all__ if name[0].isupper())
    lines = [_HEAD, *_docstring(papa.library)]
    for name in (*functions, *classes):
        lines += _entry(f"papa.{name}", getattr(papa, name), "##")
        if name in classes:
            for member_name, member in vars(getattr(papa, name)).items():
                is_shown = not member_name.startswith("_") and inspect.getdoc(member)
                if is_shown and (inspect.isfunction(member) or isinstance(member, property)):
                    lines += _entry(f"{name}.{member_name}", member, "###")
    return "\n".join(lines).rstrip() + "\n"


def _entry(title: str, member: object, heading: str) -> Iterator[str]:
    """Yield the lines on a function, a class or a property."""
    yield f"{heading} `{title}`\n"
    if callable(member):
        yield f"```python\n{title.split('.')[-1]}{_signature(member)}\n```\n"
    yield from _docstring(member)


def _signature(member: Callable[..., object]) -> str:
    """Return a signature, one parameter a line where it is long."""
    signature = inspect.signature(member)
    parameters = []
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    is_keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            parameters.append("*")
        text = stars.get(parameter.kind, "") + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        parameters.append(text)
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {_annotation(returned)}"
    in_one_line = f"({', '.join(parameters)}){arrow}"
    if len(in_one_line) <= _WIDTH:
        return in_one_line
    return "(\n    " + ",\n    ".join(parameters) + f",\n){arrow}"


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _docstring(member: object) -> Iterator[str]:
    """Yield the sections of a docstring in Google's style."""
    docstring = griffe.Docstring(inspect.getdoc(member) or "")
    for section in docstring.parse("google", warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            yield f"{_prose(section.value)}\n"
        elif isinstance(section, griffe.DocstringSectionExamples):
            for kind, text in section.value:
                is_code = kind is griffe.DocstringSectionKind.examples
                yield f"```pycon\n{text}\n```\n" if is_code else f"{_prose(text)}\n"
        elif type(section) in _LISTS:
            yield f"**{_LISTS[type(section)]}**\n"
            for item in section.value:
                name = getattr(item, "name", "") or str(item.annotation or "")
                description = " ".join(_prose(item.description).split())
                yield f"- `{name}`: {description}" if name else f"- {description}"
            yield ""


def _prose(text: str) -> str:
    """Return Markdown of a docstring's text: single backticks, links to pages, code in fences."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", text)
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            paragraph = f"```pycon\n{inspect.cleandoc(paragraph)}\n```"
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)
