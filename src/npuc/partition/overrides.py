"""`--device LAYER=cpu|npu`: which ops a user puts where."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from npuc.errors import UsageError
from npuc.ir import layer_name, result_names
from npuc.ir.definition import TensorOp

DEVICES = ("npu", "cpu")


def parse_devices(texts: Sequence[str]) -> dict[str, str]:
    """`conv1=cpu` texts as a mapping; a later one wins.

    >>> parse_devices(["conv1=cpu", "head*=npu"])
    {'conv1': 'cpu', 'head*': 'npu'}
    """
    devices = {}
    for text in texts:
        name, separator, device = text.rpartition("=")
        if not separator or not name:
            raise UsageError(
                f"--device '{text}' is not LAYER=cpu or LAYER=npu", fix="Write it like --device conv1=cpu"
            )
        devices[name] = device
    return devices


def placed(
    ops: Sequence[TensorOp],
    overrides: Mapping[str, str],
    strict: bool = True,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> dict[Any, str]:
    """The ops that overrides name, by the name of a result, a layer or (`Graph.layer_aliases`) an original node, or by a
    pattern with * and ?, and their devices.

    A name that is there nowhere is an error if `strict`.
    """
    aliases = aliases or {}
    names = {op: {*result_names(op), layer_name(op)} - {""} for op in ops}
    for op in ops:
        names[op].update(name for tensor in result_names(op) for name in aliases.get(tensor, ()))
    device_of: dict[Any, str] = {}
    for pattern, device in overrides.items():
        _check_device(pattern, device)
        matches = [op for op in ops if pattern in names[op]]
        if not matches:
            matches = [op for op in ops if _matching(names[op], pattern)]
        if not matches and strict:
            raise _unknown(pattern, device, set().union(*names.values()))
        device_of.update(dict.fromkeys(matches, device))
    return device_of


def check_devices(names: Collection[str], overrides: Mapping[str, str]) -> None:
    """Refuse what is sure to be wrong before the program is quantized: `names` are those of layers and tensors, and
    quantization adds ops that are called like one of them with `/` and a word behind it."""
    for pattern, device in overrides.items():
        _check_device(pattern, device)
        if not any(_matching(names, text) for text in (pattern, pattern.rpartition("/")[0])):
            raise _unknown(pattern, device, names)


def _check_device(pattern: str, device: str) -> None:
    if device not in DEVICES:
        raise UsageError(f"'{pattern}' is to run on '{device}'", fix="The devices are npu and cpu")


def _matching(names: Collection[str], pattern: str) -> bool:
    """Whether a name, or a pattern with * and ?, is that of one of them."""
    if pattern in names:
        return True
    return any(c in pattern for c in "*?[") and any(fnmatchcase(name, pattern) for name in names)


def _unknown(pattern: str, device: str, names: Collection[str]) -> UsageError:
    near = get_close_matches(pattern, sorted(names), n=3, cutoff=0.4)
    fix = f"The nearest names are {', '.join(near)}" if near else "'npuc show' lists the layers"
    return UsageError(f"there is no layer '{pattern}' to put on the {device.upper()}", fix=fix)
