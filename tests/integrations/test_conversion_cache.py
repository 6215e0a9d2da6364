"""A second process takes converted graphs of torch.compile from the cache; what a conversion depends on is in the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from npuc.integrations import conversion_cache  # noqa: E402
from npuc.integrations.conversion_cache import FROM_CACHE, ConversionKey  # noqa: E402
from npuc.integrations.options import IntegrationOptions  # noqa: E402
from npuc.integrations.torch import graph_key, session  # noqa: E402
from npuc.integrations.torch.backend import npuc_backend, report  # noqa: E402
from npuc.plugins import loading  # noqa: E402


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUC_CACHE", str(tmp_path))
    monkeypatch.setattr(
        loading, "_LOADED", {}
    )  # with plugins, which another test may have loaded, nothing is kept
    return tmp_path


class Counted:
    """A small network under torch.compile, as a fresh process would have it, and how often it was imported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.imports = 0
        original = session.from_torch

        def counted(*args: Any, **options: Any) -> Any:
            self.imports += 1
            return original(*args, **options)

        monkeypatch.setattr(session, "from_torch", counted)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
        self.x = torch.linspace(-1, 1, 4).reshape(1, 4)

    def run(self, **options: Any) -> tuple[torch.Tensor, Any]:
        torch._dynamo.reset()
        data = options.pop("data", [self.x, -self.x])
        with torch.no_grad():
            compiled = torch.compile(
                self.model, backend=npuc_backend, options={"data": data, "level": 0, **options}
            )
            compiled(self.x)
            return compiled(self.x), report(self.model)


@pytest.fixture()
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_a_second_start_converts_nothing(counted: Counted, folder: Path) -> None:
    first, told = counted.run()
    assert counted.imports == 1 and FROM_CACHE not in told.notes
    second, told_again = counted.run()
    assert counted.imports == 1 and torch.equal(first, second)
    assert told_again.notes[-1] == FROM_CACHE and told_again.nodes == told.nodes
    (entry,) = (folder / "conversions").rglob("*.npu")
    assert torch.equal(counted.run(cache=False)[0], first) and counted.imports == 2
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert torch.equal(counted.run()[0], first) and counted.imports == 3
    entry.write_bytes(b"")
    assert torch.equal(counted.run()[0], first) and counted.imports == 4
    with torch.no_grad():
        counted.model[0].weight[0, 0] += 1
    counted.run()
    assert counted.imports == 5


def test_a_folder_that_cannot_be_written_costs_time_only(
    counted: Counted, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    (folder / "file").write_text("no folder")
    monkeypatch.setenv("NPUC_CACHE", str(folder / "file"))
    counted.run()
    assert "the cache cannot be written" in caplog.text


def key(model: Any = None, scale: float = 1.0, **options: Any) -> str:
    graph = torch.fx.symbolic_trace(model or torch.nn.ReLU())
    torch.manual_seed(0)
    growing = ConversionKey("torch.compile", IntegrationOptions.parse({"level": 0, **options}))
    graph_key.add_graph(growing, graph, (torch.zeros(1, 4),))
    growing.add_samples([{"x": scale * torch.ones(1, 4).numpy()}])
    return growing.text


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return torch.mul(x, self.factor)


def strange(x: Any) -> Any:
    return x + 1


torch.fx.wrap("strange")


def test_what_a_conversion_depends_on_is_in_its_key() -> None:
    keys = [
        key(Scaled(2.0)),
        key(Scaled(3.0)),
        key(Scaled(2.0), scale=0.5),
        key(Scaled(2.0), target="edge-1t"),
        key(Scaled(2.0), scheme="int16"),
        key(Scaled(2.0), method="percentile"),
        key(Scaled(2.0), level=1),
    ]
    assert len(set(keys)) == len(keys)
    assert key(Scaled(2.0)) == keys[0]


def test_settings_and_packages_that_change_numbers_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = key(Scaled(2.0))
    assert conversion_cache.packages()[0].startswith("numpy ")
    monkeypatch.setattr(conversion_cache, "packages", lambda: ("numpy 0.1", "onnxruntime", "torch"))
    other = key(Scaled(2.0))
    torch.set_default_dtype(torch.float64)
    try:
        assert len({first, other, key(Scaled(2.0))}) == 3
    finally:
        torch.set_default_dtype(torch.float32)


def test_code_that_npuc_cannot_know_has_no_key() -> None:
    with pytest.raises(TypeError, match="no function of torch's own"):
        key(lambda x: strange(x))
    with pytest.raises(TypeError, match="is a module"):
        key(torch.nn.Sequential(torch.nn.ReLU()))
