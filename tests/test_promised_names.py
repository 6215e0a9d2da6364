"""Public names are promises: what a release had stays, or becomes an alias."""

from __future__ import annotations

import ctypes

import promised_names
from npuc.native import find


def test_no_promised_name_is_gone() -> None:
    gone = sorted(set(promised_names.promised()) - set(promised_names.names()))
    assert not gone, f"users rely on these; keep an alias (docs/stability.md): {gone}"


def test_the_list_has_every_kind_of_name() -> None:
    kinds = {line.split()[0] for line in promised_names.promised()}
    assert kinds == {"c", "command", "error", "field", "option", "python"}
    assert promised_names.promised() == sorted(set(promised_names.promised()))


def test_functions_of_the_c_api_are_exported() -> None:
    library = ctypes.CDLL(str(find()))
    functions = [line.split()[2] for line in promised_names.promised() if line.startswith("c npu.h ")]
    assert len(functions) > 20
    assert [name for name in functions if not hasattr(library, name)] == []


def test_python_names_are_there() -> None:
    import npuc

    assert set(npuc.__all__) <= set(dir(npuc))
    assert callable(npuc.compile)
