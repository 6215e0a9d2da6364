"""Every architecture of the zoo: imported, equal to torch, quantized, compiled, and the same bits in both modes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import npuc  # noqa: E402
from npuc.codegen.compile_model import compile_model  # noqa: E402
from npuc.compare.tensors import difference  # noqa: E402
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine  # noqa: E402
from npuc.flow import expanded, quantize_network  # noqa: E402
from npuc.ir import top  # noqa: E402
from npuc.program.model import NpuSubgraph  # noqa: E402
from npuc.sim import Simulator  # noqa: E402
from npuc.target import load_target  # noqa: E402
from support.judges.torch_judge import close, named, outputs_of  # noqa: E402
from support.networks.torch_zoo import ZOO  # noqa: E402


def test_there_are_forty() -> None:
    assert len(ZOO) >= 40


@pytest.mark.parametrize("name", ZOO)
def test_import_compile_and_run(name: str) -> None:
    torch.set_num_threads(1)
    module, inputs = ZOO[name]()
    graph = expanded(npuc.from_torch(module, inputs))
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)

    given = named(graph, inputs)
    real = FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(given)
    for port, theirs in zip(graph.outputs, outputs_of(module, inputs), strict=True):
        ours = real[port.name]
        close(port.name, ours, theirs, 1e-5)
        assert difference(port.name, ours, theirs).cosine >= 0.99999

    target = load_target("edge-4t")
    ranges = {
        key: (float(value.min()), float(value.max()))
        for key, value in {**given, **real}.items()
        if value.dtype == np.float32
    }
    integer = quantize_network(graph, ranges, target=target).graph
    wanted = IntegerEngine(integer, threads=1).run(given)
    compiled = compile_model(integer, target)
    found = Simulator(compiled, 1).run(given)
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype and np.array_equal(found[key], value), key
    assert any(isinstance(part, NpuSubgraph) for part in compiled.subgraphs)
    assert not any(isinstance(op, top.LSTM | top.GRU | top.RNN) for op in integer.ops)
