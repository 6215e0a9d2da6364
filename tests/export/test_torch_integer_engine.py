"""Integer networks on torch, as on a GPU: graph mode's integers, all of them."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.engine import ALL_TENSORS, IntegerEngine
from npuc.errors import UnknownTensorError, UsageError
from npuc.quant import SCHEMES
from support.networks.quantized import case_network, quantized_on_random_data

torch = pytest.importorskip("torch")

from npuc.export.torch.engine import TorchIntegerEngine  # noqa: E402

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("name", "scheme"), [("conv", "int8"), ("gelu", "int8-symmetric"), ("matmul", "pow2")]
)
def test_every_tensor_is_graph_modes(name: str, scheme: str, raw: bool, device: str) -> None:
    graph = quantized_on_random_data(case_network(name), SCHEMES[scheme])
    inputs = random_inputs(graph, seed=8)
    expected = IntegerEngine(graph, fetch=ALL_TENSORS, raw=raw).run(inputs)
    results = TorchIntegerEngine(graph, ALL_TENSORS, device, raw=raw).run(inputs)
    assert set(results) == set(expected)
    for tensor, array in expected.items():
        assert results[tensor].dtype == array.dtype, tensor
        np.testing.assert_array_equal(results[tensor], array, err_msg=tensor)


def test_what_is_not_there_is_named() -> None:
    graph = quantized_on_random_data(case_network("conv"))
    with pytest.raises(UnknownTensorError, match="'nope'"):
        TorchIntegerEngine(graph, ["nope"], "cpu")
    with pytest.raises(UsageError, match="cannot be 'gpu'"):
        TorchIntegerEngine(graph, (), "gpu")
