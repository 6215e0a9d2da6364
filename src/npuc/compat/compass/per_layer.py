"""Values for single layers: `8 & <[Convolution,Softmax]:16> <[(3,7)]:16> <{head.*}:16>`.

A value, and behind an ampersand exceptions: for types of layers, for ranges of layer numbers, or for names by a regular
expression. Of several that fit a layer, the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npuc.compat.compass.cfg import CfgSection

_RULE = re.compile(r"<\s*(?:\[(?P<list>[^\]]*)\]|\{(?P<regex>[^}]*)\})\s*:\s*(?P<value>[^<>]*?)\s*>")
_RANGE = re.compile(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_LONGEST = 4096


@dataclass(frozen=True)
class IrLayer:
    """A layer of an IR."""

    number: int
    name: str
    """The tensor that it makes, which npuc knows a layer by."""
    kind: str
    node: str = ""
    """What its file calls it."""


@dataclass(frozen=True)
class PerLayer:
    """A value, and its exceptions."""

    default: str
    rules: tuple[tuple[str, str, str], ...] = ()
    """The kind of selector (`list` or `regex`), the selector, the value."""

    def exceptions(self, layers: Iterable[IrLayer]) -> dict[str, str]:
        """The values of the layers that a rule fits, by name."""
        values = {}
        for layer in layers:
            for kind, selector, value in self.rules:
                if _fits(kind, selector, layer):
                    values[layer.name] = value
        return values


def _fits(kind: str, selector: str, layer: IrLayer) -> bool:
    if kind == "regex":
        return any(re.fullmatch(selector, name) for name in (layer.name, layer.node) if name)
    ranges = _RANGE.findall(selector)
    if ranges:
        return any(int(first) <= layer.number <= int(last) for first, last in ranges)
    return layer.kind.lower() in [word.strip().lower() for word in selector.split(",")]


def parse_per_layer(section: CfgSection, key: str, default: str = "") -> PerLayer:
    """The value of a key with its exceptions."""
    text = section.text(key, default)
    value, _, rest = text.partition("&")
    if len(text) > _LONGEST or _RULE.sub("", rest).strip():
        raise section.wrong(
            key, "has exceptions that are not <[Type]:value>, <[(i,j)]:value> or <{regex}:value>"
        )
    rules = []
    for match in _RULE.finditer(rest):
        kind = "list" if match["list"] is not None else "regex"
        if kind == "regex":
            try:
                re.compile(match["regex"])
            except re.error as error:
                raise section.wrong(key, f"has a regular expression that is none ({error})") from error
        rules.append((kind, match[kind], match["value"]))
    return PerLayer(value.strip(), tuple(rules))


def in_scopes(section: CfgSection, key: str, layers: Sequence[IrLayer]) -> list[str]:
    """The layers in ranges of numbers, `[(1,3),(7,7)]`."""
    text = section.text(key)
    ranges = _RANGE.findall(text)
    if text and not ranges and text not in ("[]",):
        raise section.wrong(key, "is no list of ranges such as [(1,3),(7,9)]")
    return [layer.name for layer in layers if any(int(a) <= layer.number <= int(b) for a, b in ranges)]
