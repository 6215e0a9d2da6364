"""The page docs/frameworks.md: what each importer makes of each operator of its framework, and where that runs.

It is read off the code. An import rule is followed through what it refers to, down to the ops of the `top` dialect that it
may make; such an op runs on the NPU if it has a rule that lowers it to integers and an instruction, or becomes ops that do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import CodeType, FunctionType, ModuleType
from typing import Any

from npuc.ir import top
from npuc.ir.definition import TOP_OPS, TopOp

REWRITTEN: Mapping[type[TopOp], str] = {
    top.Attention: "as matrix products and a softmax",
    top.BatchNorm: "as part of the layer before it, or as a depthwise convolution",
    top.Scale: "as part of the layer before it, or as a depthwise convolution",
    top.CumSum: "as a product with a triangle of ones, up to 1,024 elements",
    top.Pow: "if the exponent is constant, as a table or a product",
}
"""Ops that have no integer form of their own, and what they become on the way to integers."""
_SCATTERED = (
    "if new elements replace the old, or at constant indices with add, min and max, up to 4 updates a place"
)
PARTLY: Mapping[type[TopOp], str] = {
    top.ArgReduce: "where what follows takes integers",
    top.Cast: "from booleans that are computed there, and of inputs of 8 or 16 bits",
    top.Compare: "where what it compares is computed there",
    top.Div: "where divisors have one sign, and the largest is at most 16 times the smallest",
    top.GatherElements: "though the CPU computes the places of indices of the run",
    top.GatherND: "though the CPU computes the places of tuples of the run",
    top.GridSample: "at constant points of one image; no instruction computes places and weights from coordinates of the run",
    top.Logical: "where its booleans are computed there",
    top.Not: "where its booleans are computed there",
    top.Reduce: "but for products of more than 1,024 elements",
    top.ScatterElements: f"{_SCATTERED}; the CPU computes the places of indices of the run",
    top.ScatterND: f"{_SCATTERED}; the CPU computes the places of tuples of the run",
    top.TopK: "where what it compares is computed there",
    top.Where: "though a condition that the CPU computes becomes a mask there",
}
"""Ops that run on the NPU in some forms only."""

_SILENT = (top.WeightOp, top.Onnx, top.Quantize, top.Dequantize)
"""Ops that say nothing about where their operator runs."""
_BESIDE = (
    {top.Concat, top.Split, top.Tile, top.Slice, top.Expand},
    {top.Reshape, top.Permute},
    {top.Cast},
)
"""Ops that bring operands and results of others into shape: they count where nothing that comes before them does."""
_DEEPEST, _NEAR = 7, 4
"""Steps from a rule to an op; to one that brings others into shape."""
_OURS = ("npuc.frontend.", "npuc.ir.top")


@dataclass(frozen=True)
class Framework:
    """An importer."""

    title: str
    page: str
    """The page of docs/ that describes it."""
    module: str
    rules: Callable[[Any], Mapping[str, tuple[Any, str]]]
    """From the module with the registry: operator to its rule and its limits in words."""
    rest: str
    """What becomes of operators without a rule."""


def _words(function: Any) -> str:
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def _plain(registry: Any) -> dict[str, tuple[Any, str]]:
    """A registry of functions by name, or by domain and name."""
    return {
        name if isinstance(name, str) else ":".join(filter(None, name)): (rule, _words(rule))
        for name, rule in registry.RULES.items()
    }


def _described(registry: Any) -> dict[str, tuple[Any, str]]:
    """A registry that tells its limits, with functions (or none, for what is built in) by name."""
    rules = {}
    for name, words in registry.supported().items():
        rule = registry.find_rule(name) if hasattr(registry, "find_rule") else registry.RULES.get(name)
        rules[name] = rule, words or ("" if rule is None else _words(rule))
    return rules


def _tensorflow(registry: Any) -> dict[str, tuple[Any, str]]:
    """The same, where what shapes a graph (calls, loops, variables) has a registry of its own."""
    structures = import_module("npuc.frontend.tensorflow.walker").STRUCTURES
    return {
        name: (rule or structures.get(name), words) for name, (rule, words) in _described(registry).items()
    }


_CUSTOM = "kept as a custom op: a plugin has to provide it, or the network is cut before it."

FRAMEWORKS = (
    Framework(
        "ONNX",
        "import-onnx.md",
        "npuc.frontend.onnx.registry",
        _plain,
        "Every other operator of ONNX is kept as it is and runs on the CPU; one of another domain is "
        + _CUSTOM,
    ),
    Framework(
        "TensorFlow Lite",
        "import-tflite.md",
        "npuc.frontend.tflite.registry",
        _plain,
        "Every other operator is refused with its name, unless nothing needs it.",
    ),
    Framework(
        "PyTorch",
        "import-torch.md",
        "npuc.frontend.torch.registry",
        _described,
        "Torch decomposes every other op into these where it can; what is left runs on the CPU, by torch itself.",
    ),
    Framework(
        "TensorFlow",
        "import-tensorflow.md",
        "npuc.frontend.tensorflow.registry",
        _tensorflow,
        "Every other op is " + _CUSTOM,
    ),
    Framework(
        "Keras",
        "import-keras.md",
        "npuc.frontend.keras.registry",
        _described,
        "Every other layer is " + _CUSTOM,
    ),
    Framework(
        "Caffe",
        "import-caffe.md",
        "npuc.frontend.caffe.registry",
        _described,
        "Every other layer is " + _CUSTOM,
    ),
    Framework(
        "Darknet",
        "import-darknet.md",
        "npuc.frontend.darknet.registry",
        _described,
        "Every other section is " + _CUSTOM,
    ),
    Framework(
        "Compass IR",
        "import-compass.md",
        "npuc.frontend.compass.registry",
        _described,
        "Every other layer is " + _CUSTOM,
    ),
)


def device_of(op: type[TopOp]) -> tuple[str, str]:
    """Where an op of the `top` dialect runs, `NPU`, `CPU` or `NPU or CPU`, and a word on how."""
    from npuc.quant.lowering.registry import has_rule

    if op in PARTLY:
        return "NPU or CPU", f"on the NPU {PARTLY[op]}"
    if op in REWRITTEN:
        return "NPU", REWRITTEN[op]
    return ("NPU" if has_rule(op) else "CPU"), ""


def ops_of(rule: Any, name: str, others: Collection[str] = ()) -> list[type[TopOp]]:
    """The ops of the `top` dialect that a rule for an operator may make, by name, without those that go with any.

    `others` are operators that have the same rule: if an op is called like this one, those called like them are theirs.
    """
    if rule is None:
        return []
    ops = _main_ops(_Walk(name, rule.__module__).run(rule, _DEEPEST), name, others)
    if ops <= set().union(*_BESIDE):  # perhaps there is a table by something else than the operator
        steps = _NEAR + (2 if ops else 1)
        wide = _main_ops(_Walk(name, rule.__module__, every_entry=True).run(rule, steps), name, others)
        ops = wide.difference(*_BESIDE) or ops or wide
    return sorted(ops, key=lambda op: op.name)


def _main_ops(walk: _Walk, name: str, others: Collection[str]) -> set[type[TopOp]]:
    """What an operator is made of, of all that its rule leads to."""
    ops = walk.ops - set(_SILENT)
    if any(_bare(op.name) == _bare(name) for op in ops):
        theirs = {_bare(other) for other in others} - {_bare(name)}
        ops = {op for op in ops if _bare(op.name) not in theirs}
    choices = (
        ops.difference(*_BESIDE),
        walk.near & {top.Onnx},
        *(ops & walk.near & beside for beside in _BESIDE),
    )
    return next(filter(None, choices), set())


def _bare(name: str) -> str:
    """A name without what frameworks differ in: `aten.log_softmax`, `LogSoftmax` and `top.log_softmax` are one."""
    return name.rpartition(".")[2].rpartition(":")[2].replace("_", "").lower()


class _Walk:
    """The way from a rule to the ops that it refers to, through functions, methods and tables of its own importer."""

    def __init__(self, name: str, module: str, every_entry: bool = False) -> None:
        self.ops: set[type[TopOp]] = set()
        self.near: set[type[TopOp]] = set()
        """Those that are a few steps away."""
        self._names = {name, name.rpartition(".")[2], name.removeprefix("CuDNN")}
        self._seen: dict[int, Any] = {}
        self._every_entry = every_entry
        self._methods = _methods(".".join(module.split(".")[:3]))

    def run(self, rule: Any, steps: int) -> _Walk:
        """Look at all that a rule leads to, nearest things first."""
        waiting = [rule]
        for depth in range(steps):
            if depth == _NEAR:
                self.near = set(self.ops)
            reached = [reachable for thing in waiting for reachable in self._leads_to(thing)]
            waiting = []
            for reachable in reached:
                if id(reachable) not in self._seen:
                    self._seen[id(reachable)] = reachable
                    waiting.append(reachable)
        return self

    def _leads_to(self, thing: Any) -> list[Any]:
        if isinstance(thing, type) and issubclass(thing, TopOp) and thing.name in TOP_OPS:
            self.ops.add(thing)
            return []
        if isinstance(thing, Mapping):
            return self._table(thing)
        if isinstance(thing, tuple | list):
            return list(thing)
        return self._function(thing)

    def _table(self, table: Mapping[Any, Any]) -> list[Any]:
        """By operator: what it has for this one. Other tables in whole, if they are not by name."""
        words = [key for key in table if isinstance(key, str)]
        keys = [key for key in words if key in self._names]
        chosen = [table[key] for key in keys or (() if words and not self._every_entry else table)]
        parts = [part for value in chosen for part in (value if isinstance(value, tuple) else (value,))]
        named = [f"top.{part}" for part in parts if isinstance(part, str)]
        self.ops.update(TOP_OPS[name] for name in named if name in TOP_OPS)
        return chosen

    def _function(self, thing: Any) -> list[Any]:
        function = getattr(thing, "func", thing)  # a partial one has its own inside
        if not isinstance(function, FunctionType) or not function.__module__.startswith(_OURS[0]):
            return []
        reached: list[Any] = [cell.cell_contents for cell in function.__closure__ or ()]
        reached += [*(function.__defaults__ or ()), *getattr(thing, "args", ())]
        names = set(_names(function.__code__))
        known = {word: function.__globals__[word] for word in names if word in function.__globals__}
        modules = [
            value
            for value in known.values()
            if isinstance(value, ModuleType) and value.__name__.startswith(_OURS)
        ]
        for word in sorted(names):
            places = [vars(module)[word] for module in modules if word in vars(module)]
            reached += places or self._methods.get(word, [])
        return [*reached, *known.values()]


@cache
def _methods(package: str) -> dict[str, list[Any]]:
    """The methods of what the rules of an importer build with, by name."""
    classes: dict[type, None] = {}
    for info in iter_modules(import_module(package).__path__, f"{package}."):
        if not info.ispkg:
            for value in vars(import_module(info.name)).values():
                if isinstance(value, type):
                    classes.update(
                        dict.fromkeys(base for base in value.__mro__ if base.__module__.startswith(_OURS[0]))
                    )
    methods: dict[str, list[Any]] = {}
    for value in classes:
        for word, method in vars(value).items():
            if isinstance(method, FunctionType) and not word.startswith("__"):
                methods.setdefault(word, []).append(method)
    return methods


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def runs_on(ops: list[type[TopOp]], words: str = "", name: str = "") -> str:
    """Where an operator runs that becomes these ops; `words` are its limits, which may be that it is refused.

    A reduction has many operators, of which one has no form on the NPU: its `name` tells.
    """
    if not ops:
        return "refused" if words.startswith("Refused") else "–"
    if words.lower().startswith("on the cpu"):
        return "CPU"
    reduction = "CPU" if _bare(name).endswith("prod") else "NPU"
    devices = {reduction if name and op is top.Reduce else device_of(op)[0] for op in ops}
    return devices.pop() if len(devices) == 1 else "NPU or CPU"


def frameworks_page() -> Iterator[str]:
    """The lines of docs/frameworks.md."""
    yield "# Operators by framework\n"
    yield "What each importer knows, and where it runs after quantization for `edge-4t`: on the **NPU**, as integers; on the"
    yield "**CPU**, beside it; or either, by its form ([the last table](#ops-of-the-top-dialect) says by which). Limits of other"
    yield "targets may exclude more ([targets](targets.md)). `as` names the ops of the [`top` dialect](ops.md) that an operator"
    yield "may become, by its form, without those that bring operands into shape.\n"
    yield "– means that nothing is left to run, and `onnx` that an operator of ONNX runs in its place."
    yield "`npuc inspect MODEL --target NAME` tells it for a network, with reasons.\n"
    for framework in FRAMEWORKS:
        rules = framework.rules(import_module(framework.module))
        yield f"## {framework.title}\n"
        yield f"{len(rules)} operators; [how it is imported]({framework.page}). {framework.rest}\n"
        yield "| operator | on `edge-4t` | as | limits |"
        yield "|---|---|---|---|"
        for name in sorted(rules, key=str.lower):
            rule, words = rules[name]
            ops = ops_of(rule, name.rpartition(":")[2], [other for other in rules if rules[other][0] is rule])
            if runs_on(ops, words, name) == "CPU" and all(device_of(op)[0] == "NPU" for op in ops):
                ops = [top.Onnx]
            shown = ", ".join(f"`{op.name.removeprefix('top.')}`" for op in ops)
            yield (
                "| "
                + " | ".join(
                    cell.replace("|", "\\|")
                    for cell in (f"`{name}`", runs_on(ops, words, name), shown, words)
                )
                + " |"
            )
        yield ""
    yield "## Ops of the `top` dialect\n"
    yield "| op | on `edge-4t` | how |"
    yield "|---|---|---|"
    for op_name, op in sorted(TOP_OPS.items()):
        if op not in _SILENT:
            device, how = device_of(op)
            yield f"| `{op_name.removeprefix('top.')}` | {device} | {how} |"
    yield ""
