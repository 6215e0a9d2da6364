"""Quantization-aware training: the module in eval mode is graph mode and the compiled program, to the last bit."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.errors import TrainingError, UsageError
from npuc.ir import Graph, npu, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.parameters import activation_type, range_of
from npuc.quant.scheme import Scheme
from npuc.train.data import TrainingData
from npuc.train.options import TrainingOptions
from support.graphs import Builder, build
from support.networks.backend import machine
from support.programs.equal_modes import check

torch = pytest.importorskip("torch")

import npuc.train  # noqa: E402

ARITHMETICS: dict[str, dict[str, Any]] = {
    "single": {"requant": "single_rounding"},
    "even": {
        "requant": str(next(kind for kind in Kind if kind.rounding == "half_even" and kind.has_multiplier))
    },
    "double": {"requant": "double_rounding"},
    "float_scale": {"requant": "float_scale"},
    "pow2": {
        "requant": "pow2",
        "activation_scales": "power_of_two",
        "weight_scales": "power_of_two",
        "per_channel": False,
    },
}
WIDTHS = {
    "w8a8": {},
    "w4a8": {"weight": "i4"},
    "w4a4": {"weight": "i4", "activation": "i4"},
    "w2a4": {"weight": "i2", "activation": "i4", "narrow_weights": False},
    "w8a16": {"activation": "i16", "activation_scales": "symmetric"},
}


def drawn(seed: int) -> Graph:
    """A small classifier: convolutions, some grouped, residuals, concats, pools and functions, in a random order."""
    random = np.random.default_rng(seed)

    def convolution(
        b: Builder, x: Any, channels: int, outputs: int, group: int = 1, relu: bool = True
    ) -> Any:
        kernel = random.normal(0, 0.5, (outputs, channels // group, 3, 3)).astype("f4")
        bias = random.normal(0, 0.2, outputs).astype("f4")
        return b(
            top.Conv, x, kernel, bias, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=group, relu=relu,
            relu_limit=0.0, name=f"conv{len(list(b.graph.ops))}",
        )  # fmt: skip

    def layers(b: Builder, x: Any) -> Any:
        y, channels = convolution(b, x, 3, 4), 4
        for step in range(int(random.integers(2, 4))):
            name = f"step{step}"
            match int(random.integers(0, 5)):
                case 0:
                    y = b(top.Add, y, convolution(b, y, channels, channels, relu=False), relu=True, name=name)
                case 1:
                    y = b(top.Concat, [y, convolution(b, y, channels, 2)], axis=1, name=name)
                    channels += 2
                case 2:
                    y = b(
                        top.MaxPool,
                        y,
                        kernel=(2, 2),
                        strides=(1, 1),
                        pads=(0, 0, 1, 1),
                        dilations=(1, 1),
                        name=name,
                    )
                case 3:
                    y = b(
                        top.HardSwish, convolution(b, y, channels, channels, channels, relu=False), name=name
                    )
                case _:
                    y = convolution(b, y, channels, channels, 2)
        y = b(top.AvgPool, y, kernel=(6, 6), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), name="pool")
        y = b(top.Reshape, y, shape=(1, channels), name="flat")
        return b(
            top.MatMul, y, random.normal(0, 0.5, (channels, 3)).astype("f4"), np.zeros(3, "f4"), name="logits"
        )

    return build({"x": (1, 3, 6, 6)}, layers)


def samples(count: int = 48) -> TrainingData:
    random = np.random.default_rng(7)
    labels = random.integers(0, 3, count)
    images = random.normal(0, 0.5, (count, 3, 6, 6)).astype("f4")
    images[np.arange(count), labels] += 1
    return TrainingData((images,), labels)


def compare(qat: Any, x: Array, *, compiled: bool = True) -> Graph:
    """Eval mode against graph mode and against the compiled program."""
    graph = qat.export()
    engine = IntegerEngine(graph)
    expected = np.concatenate([engine.run({"x": row[None]})[graph.outputs[0].name] for row in x])
    qat.eval()
    np.testing.assert_array_equal(qat(torch.from_numpy(x)).numpy(), expected)
    if compiled:
        assert check(graph, machine(64 << 10), 1) is not None
    return graph


def config(arithmetic: str, width: str) -> QuantizationConfig:
    scheme = WIDTHS[width] | ARITHMETICS[arithmetic]
    return QuantizationConfig.model_validate({"scheme": scheme})


CASES = [(a, w) for a in ARITHMETICS for w in WIDTHS]
QUICK = [
    ("single", "w4a4"),
    ("single", "w2a4"),
    ("even", "w8a8"),
    ("double", "w8a16"),
    ("float_scale", "w4a8"),
    ("pow2", "w4a4"),
]


def trained_equals(seed: int, arithmetic: str, width: str) -> None:
    data = samples()
    qat = npuc.train.prepare(drawn(seed), data, target=None, config=config(arithmetic, width))
    first = compare(qat, data.inputs[0][:5], compiled=False)
    assert any(isinstance(op, npu.Conv) for op in first.ops), first.float_reasons
    assert not first.float_reasons
    before = [p.detach().clone() for p in qat.parameters()]
    npuc.train.fit(
        qat,
        data,
        None,
        TrainingOptions(epochs=2, batch=16, rate=0.01, clip=1.0),
        parameters=qat.parameter_groups(),
    )
    assert any(not torch.equal(p, q) for p, q in zip(qat.parameters(), before, strict=True))
    compare(qat, data.inputs[0][:5])


@pytest.mark.parametrize(("arithmetic", "width"), QUICK)
def test_eval_mode_is_graph_mode_and_the_program(arithmetic: str, width: str) -> None:
    trained_equals(CASES.index((arithmetic, width)), arithmetic, width)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + 2 * len(CASES)))
def test_eval_mode_is_graph_mode_and_the_program_for_more_networks(seed: int) -> None:
    trained_equals(seed, *CASES[seed % len(CASES)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("arithmetic", "width"), CASES)
def test_eval_mode_on_cuda_is_graph_mode(arithmetic: str, width: str) -> None:
    data = samples()
    x = data.inputs[0][:5]
    graph = drawn(CASES.index((arithmetic, width)))
    states = []
    for cuda_graph in (False, True):
        qat = npuc.train.prepare(graph, data, target=None, config=config(arithmetic, width))
        for epochs in (0, 4):
            options = TrainingOptions(
                epochs=epochs, batch=16, rate=0.01, clip=1.0, device="cuda", cuda_graph=cuda_graph
            )
            npuc.train.fit(qat, data, None, options, parameters=qat.parameter_groups())
            engine = IntegerEngine(qat.export())
            expected = [engine.run({"x": row[None]})[engine.graph.outputs[0].name] for row in x]
            result = qat.eval()(torch.from_numpy(x).cuda()).cpu().numpy()
            np.testing.assert_array_equal(result, np.concatenate(expected))
        states.append([p.detach().clone() for p in qat.parameters()])
    for plain, recorded in zip(*states, strict=True):
        torch.testing.assert_close(plain, recorded, rtol=1e-3, atol=1e-4)


def test_rows_of_samples_that_are_normalized_are_computed_together() -> None:
    """Tokens of all samples are the rows of one matrix there."""

    def layers(b: Builder, x: Any) -> Any:
        random = np.random.default_rng(0)
        y = b(top.LayerNorm, x, np.ones(8, "f4"), np.zeros(8, "f4"), axis=-1, epsilon=1e-5, name="norm")
        return b(top.MatMul, y, random.normal(0, 0.5, (8, 4)).astype("f4"), np.zeros(4, "f4"), name="y")

    x = np.random.default_rng(1).normal(0, 1, (16, 5, 8)).astype("f4")
    qat = npuc.train.prepare(build({"x": (1, 5, 8)}, layers), x, target=None)
    graph = qat.export()
    engine = IntegerEngine(graph)
    expected = np.concatenate([engine.run({"x": row[None]})["y"] for row in x])
    np.testing.assert_array_equal(qat.eval()(torch.from_numpy(x)).numpy(), expected)
    assert qat._together


def test_learned_rounding_finds_what_the_nearest_integers_lose() -> None:
    """Weights that all are rounded down, under inputs that are alike: the error of the sum grows with their number."""
    random = np.random.default_rng(0)
    weight = random.uniform(0.3, 0.4, (32, 3)).astype("f4")
    weight[0] = 7  # the largest integer: the scale is about 1
    graph = build({"x": (1, 32)}, lambda b, x: b(top.MatMul, x, weight, np.zeros(3, "f4"), name="y"))
    x = (1 + random.normal(0, 0.3, (128, 32))).astype("f4")
    inputs, goal = torch.from_numpy(x), torch.from_numpy(x @ weight)
    options = npuc.train.QatOptions(learn_rounding=True)
    qat = npuc.train.prepare(graph, x, target=None, config=config("single", "w4a8"), options=options)

    def error() -> float:
        return float((qat.eval()(inputs) - goal).abs().mean())

    nearest = error()
    optimizer = torch.optim.Adam(qat.roundings.parameters(), lr=0.02)
    for step in range(100):
        qat.train()
        qat.anneal(step / 100)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(qat(inputs), goal).backward()
        optimizer.step()
    assert error() < 0.6 * nearest
    # Each weight is the integer below or the one above, and some are not the nearest.
    integer = qat.export()
    layer = next(op for op in integer.ops if isinstance(op, npu.MatMul))
    rounded = integer.constant(layer.weight)
    assert rounded is not None
    steps = weight / qat.weight_scales[0]().detach().numpy().reshape(1, -1)
    distance = np.abs(rounded.astype(float).reshape(steps.shape) - steps)
    assert distance.max() < 1 and 10 < np.sum(distance > 0.5) < 60
    compare(qat, x[:3], compiled=False)
    assert not any(p.requires_grad for p in qat.network.body.parameters() if p.dim() > 1)


class Residual(torch.nn.Module):
    """A torch module with a batch norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.first(x)).relu_()
        return self.head((y + self.second(y)).relu().mean((2, 3)))


RESIDUAL = QuantizationConfig.model_validate(
    {
        "scheme": {"weight": "i4", "activation": "i4"},
        "types": {"matmul": {"activation": "i8"}},
    }
)


def test_a_module_is_trained_by_a_loop_of_its_owner() -> None:
    torch.manual_seed(0)
    data = samples(64)
    qat = npuc.train.prepare(Residual(), data, target="edge-4t", config=RESIDUAL)
    x, labels = torch.from_numpy(data.inputs[0]), torch.from_numpy(data.labels)
    optimizer = torch.optim.AdamW(qat.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        qat.train()
        loss = torch.nn.functional.cross_entropy(qat(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    name = qat.plan.source.inputs[0].name
    graph = qat.export()
    expected = IntegerEngine(graph).run({name: data.inputs[0][:1]})[graph.outputs[0].name]
    torch.manual_seed(0)
    again = npuc.train.prepare(Residual(), data, target="edge-4t", config=RESIDUAL)
    again.load_state_dict(qat.state_dict())
    copied = copy.deepcopy(qat)
    for module in (qat, again, copied):
        np.testing.assert_array_equal(module.eval()(x[:1]).numpy(), expected)
    # Training mode computes the same values.
    qat.train()
    np.testing.assert_allclose(qat(x[:1]).detach().numpy(), expected, atol=0.02 * np.abs(expected).max())
    # Integers of 4 bits in bytes.
    first = next(op for op in graph.ops if isinstance(op, npu.Conv))
    kind = quant_of(first.y)
    assert kind is not None and kind.dtype.limits == (-8, 7) and kind.dtype.itemsize == 1


def test_a_residual_stream_keeps_its_bits_beside_operands_of_fewer() -> None:
    config = QuantizationConfig.model_validate(
        {"scheme": {"weight": "i4", "activation": "i4"}, "types": {"add": {"activation": "i8"}}}
    )

    def layers(b: Builder, x: Any) -> Any:
        window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "relu_limit": 0.0}
        random = np.random.default_rng(0)
        kernels = random.normal(0, 0.4, (3, 3, 3, 3, 3)).astype("f4")
        a = b(top.Conv, x, kernels[0], None, relu=True, name="a", **window)
        s = b(top.Add, a, x, relu=True, name="s")
        c = b(top.Conv, s, kernels[1], None, relu=False, name="c", **window)
        return b(top.Add, s, c, relu=False, name="y")

    data = samples(16)
    qat = npuc.train.prepare(build({"x": (1, 3, 6, 6)}, layers), data, target=None, config=config)
    graph = compare(qat, data.inputs[0][:3], compiled=False)
    conv = next(op for op in graph.ops if isinstance(op, npu.Conv) and graph.find("c") is op.y)
    add = next(op for op in graph.ops if graph.find("s") in op.results)
    kinds = [quant_of(conv.x), quant_of(add.results[0])]
    assert [kind.dtype.bits for kind in kinds if kind is not None] == [4, 8]


def test_what_cannot_be_trained_is_refused() -> None:
    data = samples(8)

    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(TrainingError, match="cannot become a network"):
        npuc.train.prepare(Branch(), data)

    class Tied(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.third = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.third.weight = self.second.weight

    with pytest.raises(TrainingError, match=r"'second.weight' and 'third.weight' are the same parameter"):
        npuc.train.prepare(Tied(), data)

    class Masked(Residual):
        def forward(self, x: Any) -> Any:
            y = self.first(x)
            y[y < 0] = 0
            return y

    with pytest.raises(TrainingError, match=r"index_put.* there is no gradient for it.*torch\.where"):
        npuc.train.prepare(Masked(), data)
    with pytest.raises(UsageError, match="a dict cannot be trained"):
        npuc.train.prepare({}, data)


def test_operations_in_place_are_the_ones_out_of_place() -> None:
    class InPlace(Residual):
        def forward(self, x: Any) -> Any:
            y = self.first(x).relu_()
            y += 1
            y[:, 0] = 0.5
            return y

    class Plain(Residual):
        def forward(self, x: Any) -> Any:
            y = torch.relu(self.first(x)) + 1
            return torch.cat([torch.full_like(y[:, :1], 0.5), y[:, 1:]], 1)

    data = samples(16)
    results = []
    for kind in (InPlace, Plain):
        torch.manual_seed(3)
        module = kind().eval()
        qat = npuc.train.prepare(module, data).eval()
        x = torch.from_numpy(data.inputs[0])
        results.append(qat(x).detach())
        assert float((results[-1] - module(x).detach()).abs().max()) < 0.1
    assert float((results[0] - results[1]).abs().max()) < 0.05


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        (Scheme(), QuantType.of("i8", 0.5, -3)),
        (Scheme(activation="i4"), QuantType.of("i4", 0.25, -8)),
        (Scheme(activation_scales="symmetric"), QuantType.of("i8", 0.1015625, 0)),
        (Scheme(activation_scales="symmetric", narrow_activations=True), QuantType.of("i8", 0.1015625, 0)),
        (Scheme(activation_scales="power_of_two"), QuantType.of("i8", 0.125, 0)),
        (
            Scheme(activation="ui8", activation_scales="symmetric", unsigned_from_zero=True),
            QuantType.of("ui8", 0.5, 0),
        ),
    ],
)
def test_a_range_gives_the_type_that_it_came_from(scheme: Scheme, kind: QuantType) -> None:
    assert activation_type(*range_of(kind, scheme), scheme) == kind


def test_a_state_dict_carries_what_calibration_fixed() -> None:
    data = samples(32)
    other = TrainingData((np.abs(data.inputs[0]) * 3 - 0.5,), data.labels)

    def prepared(calibration: TrainingData, width: str = "w4a8") -> Any:
        return npuc.train.prepare(drawn(3), calibration, target=None, config=config("single", width))

    qat, second = prepared(data), prepared(other)
    zero_points = [[tensor.kind.zero_point for tensor in module.plan.tensors] for module in (qat, second)]
    assert zero_points[0] != zero_points[1]
    x = torch.from_numpy(data.inputs[0])
    expected = qat.eval()(x)
    assert not torch.equal(second.eval()(x), expected)
    state = {name: tensor.clone() for name, tensor in qat.state_dict().items()}
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    second.load_state_dict(state)
    torch.testing.assert_close(second(x), expected, rtol=0, atol=0)
    assert [tensor.kind for tensor in second.plan.tensors] == [tensor.kind for tensor in qat.plan.tensors]
    assert str(second.export().module) == str(qat.export().module)
    # The first batch of training is the same, too.
    np.testing.assert_array_equal(second.train()(x).detach(), qat.train()(x).detach())
    # A state from before schemes had a field is one with its default.
    older = json.loads(bytes(state["_extra_state"].numpy()))
    for layer in older["layers"]:
        if layer[3] is not None:
            del layer[3]["short_multipliers"]
    text = bytearray(json.dumps(older).encode())
    second.load_state_dict({**state, "_extra_state": torch.frombuffer(text, dtype=torch.uint8)})
    torch.testing.assert_close(second.eval()(x), expected, rtol=0, atol=0)
    # What cannot be taken over is refused, and changes nothing.
    third = prepared(data, "w8a8")
    before = third.eval()(x)
    with pytest.raises(TrainingError, match="has weight i4 in the state, and i8 in this module"):
        third.load_state_dict(state)
    torch.testing.assert_close(third(x), before, rtol=0, atol=0)
    strange = npuc.train.prepare(drawn(5), data, target=None, config=config("single", "w4a8"))
    with pytest.raises(TrainingError, match="another network"):
        strange.load_state_dict(state)
    for damage in (
        b"{}",
        b"",
        b"[1]",
        b'{"version": 1, "layers": 3, "types": {}, "ranges": {}, "fixed": {}}',
    ):
        with pytest.raises(TrainingError, match="none of a module of"):
            qat.set_extra_state(torch.frombuffer(bytearray(damage or b" "), dtype=torch.uint8))
    missing = {name: tensor for name, tensor in state.items() if not name.endswith("_extra_state")}
    with pytest.raises(RuntimeError, match="_extra_state"):
        qat.load_state_dict(missing)


def prepared_residual(data: TrainingData) -> Any:
    torch.manual_seed(0)
    config = QuantizationConfig.model_validate({"scheme": {"weight": "i4"}})
    return npuc.train.prepare(Residual(), data, target="edge-4t", config=config)


def test_autocast_trains_and_leaves_the_integers_alone() -> None:
    data = samples(32)
    qat = prepared_residual(data)
    x, labels = torch.from_numpy(data.inputs[0]), torch.from_numpy(data.labels)
    plain = qat(x).detach()
    # A tensor of 8 bits of precision still lies on the integers of its range.
    scales = [scale().detach() for scale in qat.activation_scales]
    place = qat.plan.tensors[0]
    short = torch.linspace(-50, 50, 64).mul(scales[0]).to(torch.bfloat16)
    steps = qat._quantized(place.values[0], short, scales) / scales[0]
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-3)
    optimizer = torch.optim.AdamW(qat.parameters(), lr=0.01)
    losses = []
    for step in range(8):
        with torch.autocast("cpu", torch.bfloat16):
            outputs = qat.train()(x)
            loss = torch.nn.functional.cross_entropy(outputs, labels)
        if not step:
            torch.testing.assert_close(outputs.float(), plain, rtol=0, atol=0.1 * float(plain.abs().max()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0]
    with torch.autocast("cpu", torch.bfloat16):
        inside = qat.eval()(x)
    outside = copy.deepcopy(qat)(x)
    assert inside.dtype == torch.float32 and torch.equal(inside, outside)


def test_data_parallel_training_gives_the_parameters_of_a_plain_loop(tmp_path: Path) -> None:
    data = samples(16)
    x, labels = torch.from_numpy(data.inputs[0]), torch.from_numpy(data.labels)
    alone, shared = prepared_residual(data), prepared_residual(data)
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(shared)
        for module in (alone, parallel):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(module.train()(x), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        np.testing.assert_array_equal(parallel.eval()(x), alone.eval()(x))
        state = {name.removeprefix("module."): tensor for name, tensor in parallel.state_dict().items()}
        fresh = prepared_residual(data)
        fresh.load_state_dict(state)
        np.testing.assert_array_equal(fresh.eval()(x), alone(x))
    finally:
        distributed.destroy_process_group()


def test_ranges_come_from_the_first_batch_where_there_was_no_data() -> None:
    from npuc.train.qat.prepare import calibrate_at_first_call

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3))
    images = 40 * torch.randn(8, 1, 8, 8)
    known = npuc.train.prepare(net, images, target="edge-1t")
    blind = npuc.train.prepare(net, torch.randn(1, 1, 8, 8), target="edge-1t")
    parameters = [id(p) for p in blind.parameters()]
    assert blind.ranges() != known.ranges()
    calibrate_at_first_call(blind)
    state = known.state_dict()
    blind.train()(images)
    assert [id(p) for p in blind.parameters()] == parameters and blind.ranges() == known.ranges()
    assert torch.equal(blind.eval()(images), known.eval()(images))
    blind.train()(images / 10)  # the second batch changes nothing
    assert blind.ranges() == known.ranges()
    # A state that is loaded has ranges of its own.
    other = npuc.train.prepare(net, torch.randn(1, 1, 8, 8), target="edge-1t")
    calibrate_at_first_call(other)
    other.load_state_dict(state)
    other.train()(images / 10)
    assert other.ranges() == known.ranges()
    scales, weights = other.scale_parameters(), other.weight_parameters()
    assert len(scales) == 4 and len(weights) == 4
