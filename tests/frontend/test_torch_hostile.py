"""Files of torch that want more than to be imported: refused before torch sees them, and nothing they ask for happens."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.hostile.isolation import isolated

torch = pytest.importorskip("torch")

from npuc.errors import NpucError  # noqa: E402
from npuc.flow import ImportOptions, import_model  # noqa: E402

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
Records = dict[str, bytes]


@cache
def exported() -> bytes:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 2)
    )
    batch = torch.export.Dim("batch", min=1, max=8)
    out = io.BytesIO()
    program = torch.export.export(module.eval(), (torch.zeros(2, 3, 4, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, out)
    return out.getvalue()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * 2.0
        return self.fc(x)


@cache
def script() -> bytes:
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(Net()), out)
    return out.getvalue()


def records(data: bytes) -> tuple[str, Records]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    folder = next(iter(found)).partition("/")[0]
    return folder, {name.partition("/")[2]: content for name, content in found.items()}


def packed(folder: str, content: Records, compress: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in content.items():
            kind = zipfile.ZIP_DEFLATED if name == compress else zipfile.ZIP_STORED
            archive.writestr(f"{folder}/{name}", data, kind)
    return out.getvalue()


def changed(data: bytes, change: Callable[[Records], None], **more: Any) -> bytes:
    folder, content = records(data)
    change(content)
    return packed(folder, content, **more)


def edited(record: str, edit: Callable[[Any], None]) -> Callable[[Records], None]:
    def change(content: Records) -> None:
        model = json.loads(content[record])
        edit(model)
        content[record] = json.dumps(model).encode()

    return change


class Touch:
    """Unpickled by anybody, it leaves a file."""

    def __reduce__(self) -> Any:
        return os.system, ("touch HACKED",)


def nodes(model: Any) -> Any:
    return model["graph_module"]["graph"]["nodes"]


def first_meta(config: Any) -> Any:
    return next(iter(config["config"].values()))


def _expression(text: str) -> Callable[[Records], None]:
    def edit(model: Any) -> None:
        values = model["graph_module"]["graph"]["tensor_values"]
        for value in values.values():
            for size in value["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = text

    return edited(MODEL, edit)


def _with(name: str, data: bytes) -> Callable[[Records], None]:
    return lambda content: content.update({name: data})


def _code(extra: str) -> Callable[[Records], None]:
    def change(content: Records) -> None:
        for name in content:
            if name.startswith("code/") and name.endswith(".py") and b"range(2)" in content[name]:
                old = content[name].decode()
                content[name] = old.replace("    fc = self.fc\n", f"    fc = self.fc\n    {extra}\n").encode()
                assert content[name].decode() != old

    return change


EXPORTED: dict[str, Callable[[Records], None]] = {
    "pickled weight": edited(WEIGHTS, lambda c: first_meta(c).update(use_pickle=True)),
    "weight beyond its record": edited(WEIGHTS, lambda c: first_meta(c)["tensor_meta"]["sizes"][0].update(as_int=1 << 40)),
    "negative stride": edited(WEIGHTS, lambda c: first_meta(c)["tensor_meta"]["strides"][0].update(as_int=-1)),
    "zeros without bytes": _with("data/weights/weight_0", b""),
    "weight outside": edited(WEIGHTS, lambda c: first_meta(c).update(path_name="../../../etc/passwd")),
    "opaque constant": edited(
        "data/constants/model_constants_config.json",
        lambda c: c["config"].update(x={"path_name": "opaque_obj_0", "use_pickle": True, "is_param": False}),
    ),
    "function of Python": edited(MODEL, lambda m: nodes(m)[0].update(target="torch.hub.load")),
    "function by a detour": edited(MODEL, lambda m: nodes(m)[0].update(target="torch.ops.__class__.__base__")),
    "attribute of every object": edited(MODEL, lambda m: nodes(m)[0].update(target="torch.ops.aten.__class__.Tensor")),
    "attribute of an op": edited(MODEL, lambda m: nodes(m)[0].update(target="torch.ops.aten.__and__.__class__")),
    "op of a package": edited(MODEL, lambda m: nodes(m)[0].update(target="torch.ops.transformers.grouped_mm.default")),
    "extension": edited(MODEL, lambda m: nodes(m)[0].update(target="#x:torch.save")),
    "code as a size": _expression("__import__('os').system('touch HACKED')"),
    "tower of powers": _expression("9**9**9**9**9"),
    "tower of functions": _expression("Pow(Integer(9), Pow(Integer(9), Integer(999999999)))"),
    "attribute in a size": _expression("Symbol('s0').__class__"),
    "code as a name": edited(MODEL, lambda m: nodes(m)[0].update(name="x=__import__('os').system('touch HACKED')")),
    "code as an input": edited(
        MODEL, lambda m: m["graph_module"]["graph"]["inputs"][-1]["as_tensor"].update(name="x, y=print(1)")
    ),
    "machine code": _with("data/aotinductor/model/model.so", b"\x7fELF"),
    "no program": lambda content: content.pop(MODEL) and None,
    "no weights": lambda content: content.pop(WEIGHTS) and None,
    "no JSON": _with(MODEL, b"{" * 100),
    "deep JSON": _with(MODEL, b"[" * 200_000),
}  # fmt: skip

SCRIPT: dict[str, Callable[[Records], None]] = {
    "pickle that runs": _with("data.pkl", pickle.dumps(Touch(), 2)),
    "pickle with a stack": _with("constants.pkl", pickle.dumps(Touch(), 4)),
    "writes a file": _code("torch.save(x, 'HACKED')"),
    "reads a file": _code("y = torch.from_file('/etc/passwd', False, 4)"),
    "writes a file, spelled apart": _code("torch . save(x, 'HACKED')"),
    "ages by arithmetic": _code("for i in range(torch.mul(torch.size(x, 0), 999999)):\n      x = torch.mul(x, 2.0)"),
    "ages, nested": _code(
        "for i in range(torch.size(x, 0)):\n      for j in range(torch.size(x, 1)):\n        x = torch.mul(x, 2.0)"
    ),
    "other ops": _code("y = ops.image.read_file('/etc/passwd')"),
    "never ends": _code("while True:\n      x = torch.mul(x, 2.0)"),
    "takes ages": _code("for i in range(999999999):\n      x = torch.mul(x, 2.0)"),
    "code at load": _code("pass\n  def __setstate__(self, x: Tensor) -> NoneType:\n    pass"),
    "not code": lambda content: content.update({n: b"\xff\xfe" for n in content if n.startswith("code/") and n.endswith("py")}),
    "nonsense": lambda content: content.update({n: b"class (" for n in content if n.startswith("code/") and n.endswith("py")}),
}  # fmt: skip


def _refused(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> NpucError:
    monkeypatch.chdir(path.parent)
    path.write_bytes(data)
    start = time.process_time()
    with pytest.raises(NpucError) as caught:
        import_model(path, ImportOptions(input_shapes={"input": (2, 3, 4, 4), "x": (2, 4)}))
    assert time.process_time() - start < 2
    assert not (path.parent / "HACKED").exists()
    assert caught.value.exit_status == 2
    return caught.value


@pytest.mark.parametrize("case", EXPORTED)
def test_hostile_exported_programs(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = _refused(tmp_path / "net.pt2", changed(exported(), EXPORTED[case]), monkeypatch)
    # Refused by npuc, before torch could: torch's own words are not trusted to come in time.
    assert "torch cannot" not in error.message


@pytest.mark.parametrize("case", SCRIPT)
def test_hostile_torchscript(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(tmp_path / "net.pt", changed(script(), SCRIPT[case]), monkeypatch)


@pytest.mark.parametrize("data", [exported, script])
def test_hostile_archives(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net"
    bomb = changed(data(), _with("data/big", bytes(100 << 20)), compress="data/big")
    assert len(bomb) < 1 << 20
    assert "claim" in str(_refused(path, bomb, monkeypatch))
    for name in ("../outside", "a/../../outside", "a\\b", "."):
        _refused(path, changed(data(), _with(name, b"")), monkeypatch)
    _refused(path, data()[: len(data()) // 2], monkeypatch)
    folder, content = records(data())
    two = packed(folder, content)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, body in content.items():
            archive.writestr(f"{folder}/{entry}", body)
        archive.writestr("elsewhere/x", b"")
    assert "one folder" in str(_refused(path, path.read_bytes(), monkeypatch))
    damaged = bytearray(two)
    damaged[two.index(b"as_tensor" if data is exported else b"forward") + 3] ^= 1
    _refused(path, bytes(damaged), monkeypatch)


def test_example_inputs_are_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a pickle that torch itself would open; an import does without."""
    monkeypatch.chdir(tmp_path)
    data = changed(exported(), _with("data/sample_inputs/model.pt", pickle.dumps(Touch())))
    (tmp_path / "net.pt2").write_bytes(data)
    import_model("net.pt2", ImportOptions(input_shapes={"input": (1, 3, 4, 4)}))
    assert not (tmp_path / "HACKED").exists()


_VALUES: tuple[Any, ...] = (
    0,
    -1,
    1 << 62,
    None,
    "",
    "x",
    [],
    {},
    True,
    1.5,
    "torch.ops.aten.relu.default",
    [1, 2, 3],
)


def _mutated(seed: int) -> bytes:
    """Damage in the program itself: well-formed JSON of another meaning."""
    chance = random.Random(seed)

    def edit(model: Any) -> None:
        graph = model["graph_module"]["graph"]
        for _ in range(chance.randint(1, 3)):
            item: Any = model if chance.random() < 0.2 else graph
            while True:
                keys = list(item) if isinstance(item, dict) else list(range(len(item)))
                if not keys:
                    break
                key = chance.choice(keys)
                if isinstance(item[key], dict | list) and item[key] and chance.random() < 0.85:
                    item = item[key]
                    continue
                if chance.random() < 0.2:
                    del item[key]
                else:
                    item[key] = chance.choice(_VALUES)
                break

    return changed(exported(), edited(MODEL, edit))


def _attempts(seeds: range, folder: str) -> list[str]:
    os.chdir(folder)
    torch.set_num_threads(1)
    wrong = []
    for seed in seeds:
        path = Path(folder) / "net.pt2"
        path.write_bytes(_mutated(seed))
        start = time.perf_counter()
        try:
            import_model(path, ImportOptions(input_shapes={"input": (1, 3, 4, 4)})).verify()
        except NpucError:
            pass
        except Exception as error:
            wrong.append(f"mutation {seed}: {type(error).__name__}: {error}")
        if time.perf_counter() - start > 20:
            wrong.append(f"mutation {seed} took {time.perf_counter() - start:.0f} s")
    return wrong


def test_mutated_programs_end_in_a_graph_or_an_error_of_the_user(tmp_path: Path) -> None:
    outcome = isolated(_attempts, range(60), str(tmp_path), memory=6 << 30, seconds=120)
    assert outcome.died == "" and outcome.value == []
