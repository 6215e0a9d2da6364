"""The module of TensorFlow Lite's schema, made from the accessors of the `tflite` package.

The package has a module for each of 180 tables, which take 27 ms to load, a tenth of the time of a small command. All that its
accessors say is where in a table a field lies, what it is, and what it is where it is absent.

`python -m npuc.cli.gendocs` writes src/npuc/frontend/tflite/schema.py; a test fails if it is stale.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

_TOP = '''\
"""TensorFlow Lite's schema as data: the fields of each table, and the numbers of its enumerations.

Made by `make docs` from the `tflite` package. Do not edit. A field has its slot in the vtable, its form, and what it is where it
is absent. A form is a letter of `struct` for a number, `text`, the name of a table, or `union`; a vector has `[` before it.
"""

from __future__ import annotations

'''

_ENUMERATIONS = (
    "ActivationFunctionType",
    "BuiltinOperator",
    "BuiltinOptions",
    "BuiltinOptions2",
    "FullyConnectedOptionsWeightsFormat",
    "MirrorPadMode",
    "Padding",
    "TensorType",
)
_LETTERS = {
    "Bool": "?", "Int8": "b", "Uint8": "B", "Int16": "h", "Uint16": "H", "Int32": "i", "Uint32": "I", "Int64": "q",
    "Uint64": "Q", "Float32": "f", "Float64": "d",
}  # fmt: skip
_ACCESSOR = re.compile(r"    def (\w+)\(self(, j)?\):\n(.*?)(?=\n\n|\n    #|\Z)", re.DOTALL)


def schema_source() -> str:
    """The text of src/npuc/frontend/tflite/schema.py."""
    return _TOP + "\n".join([*_tables(), *_enumerations()])


def _tables() -> Iterator[str]:
    import tflite

    yield "TABLES: dict[str, dict[str, tuple[int, str, bool | int | float]]] = {"
    for name in sorted(info.name for info in iter_modules(tflite.__path__)):
        kind: Any = getattr(import_module(f"tflite.{name}"), name, None)
        if not hasattr(kind, "Init"):
            continue
        fields = list(_fields(kind))
        yield f'    "{name}": {{' + ("" if fields else "},")
        yield from (f'        "{field}": {place},' for field, place in fields)
        if fields:
            yield "    },"
    yield "}\n"


def _fields(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Name and place of each field, from the text of the accessors that the schema's own compiler wrote."""
    for name, index, body in _ACCESSOR.findall(inspect.getsource(kind)):
        slot = re.search(r"_tab\.Offset\((\d+)\)", body)
        if slot is None or re.search(r"AsNumpy|VectorLen|return o == 0", body):
            continue
        number = re.search(r"number_types\.(\w+)Flags, [oa] \+", body)
        table = re.search(r"from tflite\.(\w+) import \1\n +obj", body)
        if "_tab.String(" in body:
            form = "text"
        elif "_tab.Union(" in body:
            form = "union"
        else:
            match = table or number
            assert match is not None, f"{kind.__name__}.{name}"
            form = match[1] if table else _LETTERS[match[1]]
        default = body.rsplit("return ", 1)[1].strip()
        absent = default if number and not index and default != "o" else "0"
        yield name, f'({slot[1]}, "{"[" if index else ""}{form}", {absent})'


def _enumerations() -> Iterator[str]:
    import tflite

    for name in _ENUMERATIONS:
        numbers = {key: n for key, n in vars(getattr(tflite, name)).items() if isinstance(n, int)}
        yield f"\nclass {name}:\n"
        yield f'    """The numbers of {name}."""\n'
        yield from (f"    {key} = {n}" for key, n in numbers.items())
        yield ""
