"""The pickles of a torch file, looked through and never executed.

Two things are made sure of: that a pickle names nothing but tensors and the file's own classes, and that every tensor lies
within the record that holds its numbers. torch's own reader in C++ believes what the pickle says of both.
"""

from __future__ import annotations

import pickletools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from npuc.errors import InvalidModelError, ResourceLimitError

_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
STORAGES = frozenset(f"torch.{kind}Storage" for kind in _BYTES)
_MAX_CODES = 1 << 19
_MARK = object()
_STORE = ("PUT", "BINPUT", "LONG_BINPUT")
_FETCH = ("GET", "BINGET", "LONG_BINGET")


def check_pickle(data: bytes, allowed: Collection[str], prefixes: tuple[str, ...], what: str) -> None:
    """A pickle names only what is allowed."""
    for code, argument, _ in _codes(data, what):
        # torch writes protocol 2, in which every name stands in the open.
        if code.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
            raise InvalidModelError(f"{what} holds the pickle code {code.name}, which torch does not write")
        if code.name != "GLOBAL":
            continue
        name = str(argument).replace(" ", ".")
        if name not in allowed and not name.startswith(prefixes):
            raise InvalidModelError(
                f"{what} is a pickle that asks for '{name[:120]}', and npuc executes nothing from a model"
            )


def check_tensors(data: bytes, records: Mapping[str, bytes], folder: str, what: str) -> None:
    """The tensors of a pickle lie within their records, which are in a folder of the archive."""
    for tensor in _reduced(data, what):
        kind, key, stated, offset, sizes, strides = tensor
        size = _BYTES[kind.removeprefix("torch.").removesuffix("Storage")]
        record = records.get(f"{folder}/{key}")
        if record is None:
            raise InvalidModelError(f"{what}: the numbers of a tensor, '{folder}/{key}', are not in the file")
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        used = 0 if 0 in sizes else last + 1
        if max(used, stated) * size > len(record):
            raise InvalidModelError(
                f"{what}: a tensor of the shape {list(sizes)} does not lie in the {len(record)} bytes of {folder}/{key}",
                fix="Save or download the model again",
            )


def _codes(data: bytes, what: str) -> Iterator[Any]:
    try:
        for number, code in enumerate(pickletools.genops(data)):
            if number > _MAX_CODES:
                raise ResourceLimitError(f"{what} has more than {_MAX_CODES} pickle codes")
            yield code
    except (ValueError, IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise InvalidModelError(f"{what} is a damaged pickle") from error


def _reduced(data: bytes, what: str) -> Iterator[tuple[str, str, int, int, tuple[int, ...], tuple[int, ...]]]:
    """Every tensor that a pickle makes: storage, key, elements, offset, sizes, strides."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for code, argument, _ in _codes(data, what):
        if code.name in _STORE:
            memo[argument] = stack[-1] if stack else None
            continue
        if code.name in _FETCH:
            stack.append(memo.get(argument))
            continue
        taken: list[Any] = []
        if any(item.name in ("mark", "stackslice") for item in code.stack_before):
            while stack and stack[-1] is not _MARK:
                taken.append(stack.pop())
            if stack:
                stack.pop()
            below = next(i for i, item in enumerate(code.stack_before) if item.name == "mark")
        else:
            below = len(code.stack_before)
        taken += [stack.pop() if stack else None for _ in range(below)]
        taken.reverse()
        if code.name == "MARK":
            stack.append(_MARK)
        elif code.name == "REDUCE" and taken and taken[0] == "torch._utils _rebuild_tensor_v2":
            yield _tensor(taken[1], what)
            stack.append(None)
        elif code.name.startswith(("TUPLE", "EMPTY_TUPLE")):
            stack.append(tuple(taken))
        elif code.name == "BINPERSID":
            stack.append(taken[0] if taken else None)
        else:
            stack.extend([argument] * len(code.stack_after))


def _tensor(given: Any, what: str) -> tuple[str, str, int, int, tuple[int, ...], tuple[int, ...]]:
    match given:
        case ((_, str(kind), str(key), _, int(stated)), int(offset), tuple(sizes), tuple(strides), *_):
            kind = kind.replace(" ", ".")
            numbers = (stated, offset, *sizes, *strides)
            plain = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in numbers)
            if kind in STORAGES and plain and len(sizes) == len(strides) <= 64:
                return kind, key, stated, offset, sizes, strides
    raise InvalidModelError(f"{what} makes a tensor in a way that torch does not write")
