"""Python loads this at its start where tests/mutate.py has put the folder into PYTHONPATH: npuc's modules get a fault, or probes.

Nothing is written into the sources: a module's code is changed while it is imported, in every process that a test starts.
"""

import os
import sys

_FAULT, _PROBES = os.environ.get("NPUC_FAULT"), os.environ.get("NPUC_PROBES")


def _plant(path: str, number: int) -> None:
    from importlib.machinery import SourceFileLoader

    plain = SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        if self.path != path:
            return plain(self, fullname)
        from planting import planted

        return compile(planted(self.get_data(path), number), path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _probe(folder: str) -> None:
    import builtins
    import hashlib
    import json
    import marshal
    import mmap
    from importlib.machinery import SourceFileLoader

    with open(os.path.join(folder, "bases.json"), encoding="utf-8") as file:
        bases = json.load(file)
    with open(os.path.join(folder, "hits"), "r+b") as file:
        builtins.__npuc_hits__ = mmap.mmap(file.fileno(), 0)  # type: ignore[attr-defined]
    plain = SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        known = bases.get(self.path)
        if known is None:
            return plain(self, fullname)
        base, digest = known
        source = self.get_data(self.path)
        if hashlib.sha256(source).hexdigest() != digest:
            return plain(self, fullname)  # changed since the probes were numbered
        kept = os.path.join(folder, "code", digest)
        if os.path.exists(kept):
            with open(kept, "rb") as file:
                return marshal.loads(file.read())
        import ast

        from probes import instrument

        tree = ast.parse(source)
        instrument(tree, self.path, base)
        code = compile(tree, self.path, "exec", dont_inherit=True)
        with open(f"{kept}.{os.getpid()}", "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(f"{kept}.{os.getpid()}", kept)
        return code

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


if _FAULT or _PROBES:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if _FAULT:
        _plant(_FAULT.rpartition(":")[0], int(_FAULT.rpartition(":")[2]))
    elif _PROBES:
        _probe(_PROBES)
