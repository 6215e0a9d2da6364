"""`.pt2` files: checked in full before torch sees them.

torch.export.load unpickles, evaluates expressions of sizes as Python, looks functions up by name and makes source code
of names. So a file may hold only what `torch.export.save` writes for a network of tensors: raw weights, ops of torch's
registry, plain names, and expressions of a short list of functions. Example inputs and all metadata but the module paths
are left out.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import torch

from npuc.errors import FileFormatError, InvalidModelError, ResourceLimitError
from npuc.frontend.support import MAX_ELEMENTS, bounded_json
from npuc.frontend.torch.archive import Archive, read_archive
from npuc.frontend.torch.export import guarded

_MODEL = "models/model.json"
_TARGET = re.compile(r"torch\.ops\.[a-z_0-9A-Z]+\.[a-zA-Z_0-9]+(\.[a-zA-Z_0-9]+)?\Z")
_OWN = ("aten", "prims", "prim", "higher_order")
"""The namespaces of torch itself."""
_LATE = {"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
"""Namespaces that torch registers when a module of its own is imported: quantize and dequantize of PT2E."""
_SYMBOLIC = re.compile(r"(_operator\.[a-z_]+|math\.[a-z]+|torch\.sym_[a-z_]+)\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TOKENS = re.compile(r"\s*(?:([A-Za-z_]\w*)|('[\w.+\-]{1,32}')|(\d{1,18})|([(),=\-+*/<>!]))")
_WORDS = {
    "Symbol", "Integer", "Mul", "Add", "Pow", "Mod", "Max", "Min", "Rational", "Float", "precision",
    "Eq", "Ne", "Le", "Lt", "Ge", "Gt",
    "Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan", "And", "Or", "Not",
    "FloorDiv", "ModularIndexing", "CeilDiv", "CleanDiv", "PythonMod", "CeilToInt", "FloorToInt", "TruncToInt",
    "RoundToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "Piecewise", "floor", "ceiling",
    "positive", "integer", "nonnegative", "nonzero", "real", "negative", "True", "False", "true", "false",
}  # fmt: skip
_MAX_EXPRESSION = 4096
_MAX_POWERS = 3
"""Powers of powers."""
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2}
"""Bytes of an element by the number of its type in the file."""


def load_exported(path: Path) -> Any:
    """The ExportedProgram that a file holds."""
    archive = read_archive(path)
    if "archive_format" not in archive.records and _MODEL not in archive.records:
        raise FileFormatError(
            "is no exported program of a torch since 2.8",
            where=str(path),
            fix="Export it again with torch.export.save",
        )
    clean = checked(archive)
    fix = "Export it again with the torch that is installed here"
    program = guarded(
        "torch cannot read the exported program", fix, lambda: torch.export.load(clean.packed())
    )
    # The example inputs were left out: they are a pickle.
    program._example_inputs = None
    return program


def checked(archive: Archive) -> Archive:
    """The archive with what torch needs of it, all of it looked at."""
    if _MODEL not in archive.records:
        raise InvalidModelError("the archive holds no program 'model'")
    records: dict[str, bytes] = {}
    for name, data in archive.records.items():
        if name == _MODEL:
            model = bounded_json(data, f"the record {name}")
            _check_program(model)
            records[name] = json.dumps(_without_metadata(model)).encode()
        elif name in (
            "archive_format",
            "archive_version",
            "byteorder",
            ".data/version",
            ".data/serialization_id",
        ):
            records[name] = data[:256]
        elif re.fullmatch(r"data/(weights/weight|constants/tensor)_\d+", name):
            records[name] = data
        elif name.startswith("data/aotinductor/"):
            raise InvalidModelError(
                "the archive holds compiled machine code", fix="Save the program with torch.export.save"
            )
    for kind, folder in (("weights", "data/weights"), ("constants", "data/constants")):
        name = f"{folder}/model_{kind}_config.json"
        if name not in archive.records:
            raise InvalidModelError(f"the archive has no {name}")
        config = bounded_json(archive.records[name], f"the record {name}")
        _check_payloads(config, folder, archive.records)
        records[name] = json.dumps(config).encode()
    records["data/sample_inputs/model.pt"] = _no_samples()
    return Archive("model", records)


def _no_samples() -> bytes:
    out = io.BytesIO()
    torch.save(((), {}), out)
    return out.getvalue()


def _check_payloads(config: dict[str, Any], folder: str, records: dict[str, bytes]) -> None:
    entries = config.get("config")
    if not isinstance(entries, dict):
        raise InvalidModelError("the list of weights has no entries")
    for title, entry in entries.items():
        try:
            if entry["use_pickle"] is not False:
                raise InvalidModelError(f"the weight '{title}' is a pickle", fix="Save it as a plain tensor")
            meta, data = entry["tensor_meta"], records[f"{folder}/{entry['path_name']}"]
            sizes = [int(n["as_int"]) for n in meta["sizes"]]
            strides = [int(n["as_int"]) for n in meta["strides"]]
            offset = int(meta["storage_offset"]["as_int"])
            size = _SIZES[int(meta["dtype"])]
            plain = re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]) is not None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidModelError(f"the entry of the weight '{title}' is malformed") from error
        fits = len(sizes) == len(strides) and min([offset, *sizes, *strides]) >= 0 and plain
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=False))
        if not fits or (prod(sizes) > 0 and (last + 1) * size > len(data)) or prod(sizes) > MAX_ELEMENTS:
            raise InvalidModelError(
                f"the weight '{title}' of shape {sizes} does not lie in the {len(data)} bytes of its record"
            )
        # One that sits on a GPU is read as one on the CPU.
        meta["device"] = {"type": "cpu", "index": None}


def _check_program(model: dict[str, Any]) -> None:
    stack: list[tuple[str, Any]] = [("", model)]
    count = 0
    while stack:
        key, item = stack.pop()
        count += 1
        if count > 20_000_000:
            raise ResourceLimitError("the program has too many parts")
        if isinstance(item, dict):
            stack.extend(item.items())
            if "expr_str" in item:
                _check_expression(item["expr_str"])
            if item.get("type") not in (None, "cpu") and "index" in item and set(item) == {"type", "index"}:
                item.update(type="cpu", index=None)
            for name in item if key in ("tensor_values", "sym_int_values", "sym_bool_values") else ():
                _check_name(name)
        elif isinstance(item, list):
            stack.extend((key, part) for part in item)
        elif key == "target" and isinstance(item, str):
            _check_target(item)
        elif key in ("name", "as_name") and isinstance(item, str):
            _check_name(item)
        elif key in ("as_operator", "as_graph", "as_custom_obj") and item:
            raise InvalidModelError(
                f"the program holds {key.removeprefix('as_')} arguments, not only tensors"
            )


def _check_target(target: str) -> None:
    if not _is_registered(target) and _SYMBOLIC.match(target) is None:
        raise InvalidModelError(f"the program calls '{target[:120]}', which is no op of torch")
    parts = target.split(".")
    if target.startswith("torch.ops.") and parts[2] in _LATE:
        with suppress(ImportError):  # a later torch without it
            import_module(_LATE[parts[2]])
    if (
        target.startswith("torch.ops.")
        and parts[2] not in _OWN
        and not hasattr(getattr(torch.ops, parts[2]), parts[3])
    ):
        raise InvalidModelError(
            f"the program calls '{parts[2]}::{parts[3]}', an op of the package '{parts[2]}' and not of torch",
            fix="Load it in Python where that package is imported, and give it to npuc.from_torch; or export the model "
            "without that op",
        )


def _is_registered(target: str) -> bool:
    """True for an op of torch's registry. `__and__` is one, and `__class__` an attribute that every object has."""
    if _TARGET.match(target) is None:
        return False
    _, _, space, op, *overload = target.split(".")
    if any(part.startswith("__") for part in (space, *overload)):
        return False
    return not op.startswith("__") or bool(torch._C._jit_get_schemas_for_operator(f"{space}::{op}"))


def _check_name(name: str) -> None:
    if name and _IDENTIFIER.match(name) is None:
        raise InvalidModelError(f"'{name[:80]}' is no name that torch gives to a tensor")


def _check_expression(text: Any) -> None:
    """Sizes are expressions of integers, symbols and a few functions: nothing that could do something."""
    if not isinstance(text, str) or len(text) > _MAX_EXPRESSION:
        raise InvalidModelError("the program holds a size that is no expression")
    _check_powers(text)
    position = 0
    while position < len(text.rstrip()):
        match = _TOKENS.match(text, position)
        word = match and match.group(1)
        known = match is not None and (
            not word or word in _WORDS or re.fullmatch(r"[suz]\d{1,9}", word) is not None
        )
        if match is None or not known or "**" in text[position : position + 2]:
            raise InvalidModelError(f"the program holds the size '{text[:80]}', which torch does not write")
        position = match.end()


def _check_powers(text: str) -> None:
    """Powers are of one digit, and not piled up: others may not fit any memory."""
    opened: list[bool] = []
    for match in re.finditer(r"(Pow)?\(|\)", text):
        if match.group() != ")":
            opened.append(match.group(1) is not None)
            if sum(opened) > _MAX_POWERS:
                break
        elif opened and opened.pop() and not re.search(r"Integer\(-?\d\)\Z", text[: match.start()]):
            break
    else:
        return
    raise InvalidModelError(f"the program holds the size '{text[:80]}', a power that may be of any size")


def _without_metadata(model: dict[str, Any]) -> dict[str, Any]:
    """The program without what is of no use for an import."""
    stack: list[Any] = [model]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            metadata = item.get("metadata")
            if isinstance(metadata, dict):
                path = metadata.get("nn_module_stack")
                item["metadata"] = {"nn_module_stack": path} if isinstance(path, str) else {}
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return model
