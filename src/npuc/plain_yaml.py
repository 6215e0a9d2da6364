"""YAML as people write it, for files that are not trusted: no aliases, little nesting, short numbers, every key once.

PyYAML alone follows any nesting until Python gives up, reads numbers of any length in quadratic time, and lets the last of two
equal keys win.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

_MAX_DEPTH = 32
_MAX_NUMBER = 64
_MAX_ENTRIES = 1 << 18
"""A saved schedule has eight a layer."""


class _Loader(yaml.SafeLoader):
    _depth = 0
    _count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed here")
        self._depth += 1
        self._count += 1
        if self._count > _MAX_ENTRIES:
            raise yaml.YAMLError(f"it has more than {_MAX_ENTRIES} entries")
        if self._depth > _MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {_MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise yaml.YAMLError(f"'{key.value[:60]}' is there twice, in line {key.start_mark.line + 1}")
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else "")
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        if len(node.value) > _MAX_NUMBER:
            raise yaml.YAMLError(f"a number of {len(node.value)} digits, in line {node.start_mark.line + 1}")
        return yaml.SafeLoader.yaml_constructors[node.tag](self, node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def load_yaml(text: str | bytes) -> Any:
    """The content of a file; `yaml.YAMLError` says what is wrong with it.

    >>> load_yaml("a: [1, 2.5, x]")
    {'a': [1, 2.5, 'x']}
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # a date that is none, bytes that are no text
        raise yaml.YAMLError(str(error)[:200]) from error
