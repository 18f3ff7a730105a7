"""``papa init``: a study that explains itself, made from the specification's own fields."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel

from flows.cli.options import one_sentence
from papa.errors import SpecError

_WIDTH = 100
_HEAD = (
    "A study of PAPA, to be edited. Lines that begin with '#' and a key say what holds without "
    "them: take the '#' away to change a value."
)
_STARTS = {"name": "my-study", "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": ["reviews"]}
"""What a study must say; it runs without a hub."""
OWN_TASK: dict[str, Any] = {
    "name": "tickets",
    "kind": "text",
    "source": {"kind": "files", "train": "train.jsonl", "validation": "validation.jsonl"},
    "columns": {"text": "body", "label": "queue"},
    "metric": "accuracy",
    "slots": 128,
    "probe": {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4},
}


def init(
    to: Annotated[Path, typer.Argument(metavar="[FILE]", help="A new file.")] = Path("study.yaml"),
) -> None:
    """Write a study that explains itself, to start from."""
    with one_sentence():
        try:
            with to.open("x") as file:
                file.write(example_study())
        except OSError as error:
            raise SpecError(f"{to} cannot be written ({error.strerror}): name another") from None
        typer.echo(f"Written to {to}; edit it, then: papa check {to}")


def example_study() -> str:
    """The study as YAML with comments: every key, its meaning and its default."""
    from papa.spec import StudySpec
    from papa.spec.file import registry

    text = yaml.safe_dump([OWN_TASK], default_flow_style=None, sort_keys=False, width=_WIDTH)
    known = f"Known by name: {', '.join(sorted(registry()))}. A task of your own, in full:"
    tasks = [*_comment(known, ""), *(f"#   {line}" for line in text.splitlines())]
    return "\n".join([*_comment(_HEAD, ""), *_fields(StudySpec, "", tasks)]) + "\n"


def _fields(model: type[BaseModel], indent: str, tasks: list[str]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation if isinstance(field.annotation, type) else None
        nested = inner is not None and issubclass(inner, BaseModel)
        meaning = field.description or (inspect.getdoc(inner) if nested else "") or ""
        if not indent:
            yield ""
        yield from _comment(meaning, indent)
        if name in _STARTS:
            yield _line(name, _STARTS[name])
            yield from tasks if name == "tasks" else ()
        elif nested and inner is not None:
            yield f"# {indent}{name}:"
            yield from _fields(inner, f"{indent}  ", tasks)
        else:
            yield f"# {indent}{_line(name, _plain(field.get_default()))}"


def _line(name: str, value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return f"{name}: {text.strip().removesuffix('...').strip()}"


def _plain(value: Any) -> Any:
    """A default as a study file says it."""
    if isinstance(value, BaseModel):
        set_there = value.model_dump(mode="json", exclude_defaults=True)
        return next(iter(set_there.values())) if len(set_there) == 1 else set_there
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _comment(text: str, indent: str) -> list[str]:
    prefix = f"# {indent}# " if indent else "# "
    plain = " ".join(text.replace("``", "").replace("None", "null").split())
    return textwrap.wrap(plain, _WIDTH, initial_indent=prefix, subsequent_indent=prefix)
