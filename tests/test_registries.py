"""One rule for everything that can be registered: a name is taken once, unless `replace=True` is said."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import npuc
from npuc.errors import MissingExtraError, PluginError, UsageError
from npuc.registries import REGISTRIES, Lenient, Registry, isolated

for _module in walk_packages(npuc.__path__, "npuc."):
    if not _module.name.endswith("__main__"):
        with suppress(MissingExtraError):
            import_module(_module.name)

LENIENT = {
    Lenient.OWN: {
        "npuc.frontend.caffe.registry",
        "npuc.frontend.darknet.registry",
        "npuc.frontend.keras.registry",
        "npuc.frontend.tensorflow.registry",
    },
    Lenient.ALL: {
        "npuc.calib.ranges.base",
        "npuc.datasets.data",
        "npuc.frontend.tensorflow.walker",
        "npuc.kernels.custom",
        "npuc.metrics.measuring",
        "npuc.partition.kinds",
        "npuc.runtime.device",
        "npuc.schedule.rules",
    },
}
"""Whose registries took a second registration silently before there was one rule. Nothing is to be added here."""

STATE = {
    "npuc.cli.console": {"_SHOWN"},
    "npuc.distribute.cluster": {"_open"},
    "npuc.files": {"_before_mapping"},
    "npuc.frontend.onnx.subgraphs": {"RULES"},  # a list: rules are tried in order, and have no names
    "npuc.integrations.onnxruntime": {"_REPORTS", "_KEPT"},
    "npuc.integrations.torch.session": {"_SESSIONS"},
    "npuc.ir.subgraph_rules": {"SUBGRAPH_RULES"},  # likewise
    "npuc.plugins.loading": {"_LOADED"},
    "npuc.program.custom_kernels": {"_ALIVE"},
    "npuc.registries": {"REGISTRIES"},
    "npuc.runtime.process": {"_living"},
}
"""Tables of modules that functions write to and that are no registries."""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with isolated():
        yield
    for registry in REGISTRIES:  # of modules that claimed to be npuc's own
        registry.remove(*(key for key in registry if key == "npuc-test"))


@pytest.fixture(params=REGISTRIES, ids=lambda one: f"{one._home}: {one._what}")
def registry(request: pytest.FixtureRequest) -> Registry[Any, Any]:
    return request.param  # type: ignore[no-any-return]


def test_a_second_registration_is_refused_or_warns_and_names_who_was_first(
    registry: Registry[Any, Any],
) -> None:
    registry.add(["npuc-test"], len, module="first_plugin")
    if registry.lenient is Lenient.ALL:
        with pytest.warns(FutureWarning, match="'npuc-test' already, of first_plugin, and second_plugin"):
            registry.add(["npuc-test"], max, module="second_plugin")
        assert registry["npuc-test"] is max and registry.owner("npuc-test") == "second_plugin"
        return
    with pytest.raises(PluginError, match="'npuc-test' already, of first_plugin") as caught:
        registry.add(["npuc-other", "npuc-test"], max, module="second_plugin")
    assert "replace=True" in str(caught.value.fix)
    assert registry["npuc-test"] is len and "npuc-other" not in registry


def test_who_says_so_replaces(registry: Registry[Any, Any]) -> None:
    registry.add(["npuc-test"], len, module="first_plugin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.add(["npuc-test"], max, replace=True, module="second_plugin")
    assert registry["npuc-test"] is max and registry.owner("npuc-test") == "second_plugin"


def test_what_replaces_npucs_own_may_come_before_it(registry: Registry[Any, Any]) -> None:
    registry.add(["npuc-test"], len, replace=True, module="a_plugin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.add(["npuc-test"], max, module="npuc.late")
    assert registry["npuc-test"] is len


def test_a_plugin_over_npucs_own(registry: Registry[Any, Any]) -> None:
    registry.add(["npuc-test"], len, module="npuc.early")
    if registry.lenient is Lenient.NONE:
        with pytest.raises(PluginError, match=r"already, of npuc.early"):
            registry.add(["npuc-test"], max, module="a_plugin")
    else:
        with pytest.warns(FutureWarning, match="will be an error, unless it says replace=True"):
            registry.add(["npuc-test"], max, module="a_plugin")
        assert registry["npuc-test"] is max


def test_what_is_registered_in_isolation_is_forgotten(registry: Registry[Any, Any]) -> None:
    before = dict(registry)
    with isolated():
        registry.add(["npuc-test"], len, module="a_plugin")
        for key in list(before)[:1]:
            registry.add([key], len, replace=True, module="a_plugin")
            assert registry.owner(key) == "a_plugin"
    assert dict(registry) == before and list(registry) == list(before)


def test_what_a_module_registers_while_it_is_imported_is_its_own(registry: Registry[Any, Any]) -> None:
    assert not [key for key in registry if registry.owner(key).startswith("importlib")]


def test_only_old_registries_are_lenient() -> None:
    for lenient, modules in LENIENT.items():
        assert {one._home for one in REGISTRIES if one.lenient is lenient} == modules


def test_the_module_that_registers_is_known_without_being_told() -> None:
    from npuc.frontend.onnx.registry import RULES, rule
    from npuc.ir import npu, top

    assert RULES.owner(("", "Conv")) == "npuc.frontend.onnx.rules.convolution"
    assert npu.NPU_OPS.owner("npu.conv") == npu.Conv.__module__

    @rule("Mine", domain="com.example")
    def mine(ctx: Any) -> Any: ...

    assert RULES.owner(("com.example", "Mine")) == __name__
    with pytest.raises(PluginError, match=f"'com.example:Mine' already, of {__name__}"):
        rule("Mine", domain="com.example")(mine)
    from npuc.engine.torch.registry import HANDLERS

    with pytest.raises(PluginError, match=r"'top.relu' already, of npuc.engine.torch.elementwise"):
        HANDLERS.add([top.Relu], len)


def test_the_warning_points_to_the_line_that_registers() -> None:
    from npuc.kernels.custom import register_kernel

    register_kernel("com.example", "Mine", lambda arrays, attributes: arrays)
    with pytest.warns(FutureWarning) as told:
        register_kernel("com.example", "Mine", lambda arrays, attributes: arrays)
    assert told[0].filename == __file__


def test_an_unknown_name_is_told_the_nearest() -> None:
    colours: Registry[str, int] = Registry("a colour", {"red": 1, "green": 2})
    REGISTRIES.remove(colours)
    assert colours.named("red") == 1
    with pytest.raises(UsageError, match="there is no colour 'gren'") as caught:
        colours.named("gren")
    assert caught.value.fix == "Did you mean 'green'? There are: green, red"


def _written_tables(tree: ast.Module) -> set[str]:
    """The dicts, lists and sets of a module that its functions write to."""
    own = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Dict | ast.List | ast.Set | ast.Call | ast.DictComp)
        and "Registry(" not in ast.unparse(node.value)
    }
    written = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                written |= {
                    target.value.id
                    for target in targets
                    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
                }
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.attr in ("update", "add", "append", "setdefault", "insert", "extend")
            ):
                written.add(node.func.value.id)
    return own & written


def test_nothing_is_registered_in_a_table_that_is_no_registry() -> None:
    root = Path(npuc.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("npuc", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        tables = _written_tables(ast.parse(path.read_text()))
        if tables:
            found[module] = tables
    assert found == STATE
