"""YAML of studies: written without aliases; a key given twice, and an alias, are refused."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from papa.errors import SpecError, in_one_line


def write_yaml(value: object) -> str:
    """JSON values as YAML, with everything written out where it stands."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def read_yaml(text: str, origin: str) -> Any:
    """The value that YAML describes; a SpecError names the line where it is none."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(f"{origin} is not YAML: {in_one_line(error)}") from None


class _Loader(yaml.SafeLoader):
    """Aliases can make a short text endless, and of a key given twice YAML keeps the last."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            self._refuse(event, f"an alias (*{event.anchor}) is not read: write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if (name := str(key.value)) in seen:
                self._refuse(key, f"'{name}' stands there a second time: remove one of them")
            seen.add(name)
        return super().construct_mapping(node, deep)

    def _refuse(self, found: Any, why: str) -> None:
        raise yaml.MarkedYAMLError(problem=why, problem_mark=found.start_mark)
