"""Real models compute the same in canonical form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.ir import Graph, print_graph
from npuc.transform import canonicalize
from support.graphs import evaluate, random_inputs
from support.passes import kinds
from support.shared_models import known

MODELS = [path.name for path in known(["onnx"])] or ["none"]

SHAPES = {
    "cifar10_resnet20.onnx": {"input": (1, 3, 32, 32)},
    "ppocrv3_text_det.onnx": {"x": (1, 3, 160, 160)},
    "super_resolution.onnx": {"input": (1, 1, 224, 224)},
}
"""Input shapes of the models that leave them open."""

GONE = {"batch_norm", "scale", "relu", "clip"}
"""What the canonical form has no need of in these networks, because convolutions took it in."""


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, shared: Path) -> tuple[str, Graph]:
    path = shared / "models" / "onnx" / request.param
    if not path.is_file():
        pytest.skip("no ONNX models in the shared folder")
    return request.param, import_onnx(path, ImportOptions(input_shapes=SHAPES.get(request.param, {})))


def test_the_canonical_form_computes_the_same(model: tuple[str, Graph]) -> None:
    name, graph = model
    after = canonicalize(graph)
    feed = random_inputs(graph, low=0.0, high=1.0)
    expected, actual = evaluate(graph, feed), evaluate(after, feed)
    assert list(actual) == list(expected)
    for key, want in expected.items():
        a, b = actual[key].astype(np.float64).ravel(), want.astype(np.float64).ravel()
        cosine = a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300)
        # Scores of noise may all be as good as zero, where a sigmoid in single precision has steps of 1e-7.
        assert cosine >= 0.99999 or np.abs(a - b).max() <= 1e-6, f"{name}: {key}: cosine {cosine}"
    assert sum(kinds(after).values()) < sum(kinds(graph).values())


def test_the_canonical_form_is_stable_and_has_the_same_interface(model: tuple[str, Graph]) -> None:
    _, graph = model
    after = canonicalize(graph, verify_each=True)
    assert print_graph(canonicalize(after)) == print_graph(after)
    assert [(p.name, p.type) for p in after.inputs] == [(p.name, p.type) for p in graph.inputs]
    assert [(p.name, p.type) for p in after.outputs] == [(p.name, p.type) for p in graph.outputs]


def test_convolutions_take_in_what_surrounds_them(model: tuple[str, Graph]) -> None:
    _, graph = model
    assert not kinds(canonicalize(graph)).keys() & GONE


def test_names_of_layers_survive(model: tuple[str, Graph]) -> None:
    """What is left in canonical form is mostly called what the user calls it, and equals the tensor of that name."""
    _, graph = model
    after = canonicalize(graph)
    before = set(graph.tensor_names())
    kept = [name for name in after.tensor_names() if name in before]
    assert len(kept) >= 0.9 * len(after.tensor_names())
    feed = random_inputs(graph, low=0.0, high=1.0)
    some = kept[:: max(1, len(kept) // 12)]
    expected, actual = evaluate(graph, feed, fetch=some), evaluate(after, feed, fetch=some)
    for name in some:
        a, b = actual[name].astype(np.float64), expected[name].astype(np.float64)
        assert np.abs(a - b).max() <= 1e-3 * max(1.0, float(np.abs(b).max())), name
