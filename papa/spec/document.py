"""YAML of studies: written without aliases, read within limits, faults in one sentence."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path
from typing import Any

import yaml

from papa.errors import SpecError, in_one_line, shortened

_MOST_CHARACTERS = 1_000_000
_MOST_DEPTH = 20
_TEXT = "tag:yaml.org,2002:str"
_PATIENCE_SECONDS = 10.0


def text_of(path: Path) -> str:
    """The text of a file, or of a pipe that somebody writes to."""
    mode = path.stat().st_mode
    if not stat.S_ISFIFO(mode):
        if not stat.S_ISREG(mode):
            raise OSError("it is no file")
        return path.read_text(encoding="utf-8")
    # To open a pipe may take for ever; like this it waits for nobody.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as pipe:
        if not select.select([pipe], [], [], _PATIENCE_SECONDS)[0]:
            raise OSError(
                f"it is a pipe that nobody wrote to within {_PATIENCE_SECONDS:.0f} seconds"
            )
        os.set_blocking(pipe.fileno(), True)
        return pipe.read()


def write_yaml(value: object) -> str:
    """JSON values as YAML, with everything written out where it stands."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def read_yaml(text: str, origin: str) -> Any:
    """The value that YAML describes."""
    if len(text) > _MOST_CHARACTERS:
        raise SpecError(
            f"{origin} has {len(text):,} characters, at most {_MOST_CHARACTERS:,} are read: make "
            "it shorter"
        )
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check(node, origin, 0)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except _AliasError as error:
        raise SpecError(f"{origin}: {error}: write the value out") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{origin} is not YAML: {in_one_line(error)}") from None
    except RecursionError:
        raise SpecError(
            f"{origin} is nested too deeply, at most {_MOST_DEPTH} levels are read: flatten it"
        ) from None
    except (
        ValueError,
        TypeError,
        OverflowError,
        AttributeError,
        LookupError,
    ) as error:  # Of an odd tag's value.
        raise SpecError(
            f"{origin} holds a value that cannot be read ({in_one_line(error)}): correct it"
        ) from None


class _AliasError(Exception):
    """A value stands for another one."""


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            name = shortened(event.anchor, 60)
            raise _AliasError(
                f"line {event.start_mark.line + 1} holds the alias *{name}, and no alias is read"
            )
        return super().compose_node(parent, index)


def _check(node: yaml.Node, origin: str, depth: int) -> None:
    """Refuse what is nested too deep, and keys that are no text or given twice."""
    if depth > _MOST_DEPTH:
        line = node.start_mark.line + 1
        raise SpecError(f"{origin}: line {line} is nested more than {_MOST_DEPTH} deep: flatten it")
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, origin, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            where = f"{origin}: line {key.start_mark.line + 1}"
            if key.tag != _TEXT:
                raise SpecError(
                    f"{where} has a key that is no text: write a name there, or put it in quotes"
                )
            if key.value in keys:
                raise SpecError(
                    f"{where} gives '{shortened(key.value, 60)}' a second time: remove one of them"
                )
            keys.add(key.value)
            _check(value, origin, depth + 1)
