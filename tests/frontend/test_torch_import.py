"""From torch's models to graphs: names, types, shapes, files, and every option of an import."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import npuc  # noqa: E402
from npuc.codegen.compile_model import compile_model  # noqa: E402
from npuc.compare.tensors import difference  # noqa: E402
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine  # noqa: E402
from npuc.errors import (  # noqa: E402
    DynamicShapeError,
    EngineError,
    FileFormatError,
    InvalidModelError,
    MissingExtraError,
    UnknownTensorError,
    UsageError,
)
from npuc.flow import ImportOptions, check_model, import_model, input_names, quantize_network  # noqa: E402
from npuc.frontend.torch import import_module  # noqa: E402
from npuc.images.preprocess import Preprocess  # noqa: E402
from npuc.ir import dtype_of, print_graph, shape_of, top  # noqa: E402
from npuc.program.model import CpuSubgraph  # noqa: E402
from npuc.sim import Simulator  # noqa: E402
from npuc.target import load_target  # noqa: E402
from support.judges.torch_judge import close, compare, named, outputs_of  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
        )
        self.block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm(self.conv(x)))
        y = self.act(y + self.block(y))
        return self.fc(y.mean((2, 3)))


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _saved(path: Path, module: nn.Module, inputs: tuple[Any, ...], **more: Any) -> Path:
    torch.export.save(torch.export.export(module.eval(), inputs, **more), path)
    return path


def _same(path: Path, module: Any, inputs: tuple[Any, ...], options: ImportOptions | None = None) -> Any:
    graph = import_model(path, options)
    ours = FloatEngine(graph, threads=1).run(named(graph, inputs))
    for (name, a), b in zip(ours.items(), outputs_of(module, inputs), strict=True):
        close(name, a, b, 1e-5)
    return graph


# Live modules


def test_layers_are_called_after_their_modules() -> None:
    graph = import_module(Net(), _x(1, 3, 8, 8))
    assert graph.tensor_names() == ["conv", "norm", "act", "block.0", "block.1", "add", "act.1", "mean", "fc"]
    assert [port.name for port in graph.inputs] == ["x"] and graph.outputs[0].name == "fc"
    assert "conv.weight" in graph.weights and "norm.running_var" in graph.weights


def test_a_module_is_left_in_its_mode() -> None:
    module = Net().train()
    module.norm.eval()
    import_module(module, _x(1, 3, 8, 8))
    assert module.training and module.conv.training and not module.norm.training


def test_a_graph_keeps_its_weights_when_the_model_goes_on_to_learn() -> None:
    module = nn.Linear(2, 2)
    graph = import_module(module, _x(1, 2))
    before = graph.weights.array("weight").copy()
    with torch.no_grad():
        module.weight.zero_()
    assert np.array_equal(graph.weights.array("weight"), before) and before.any()


def test_tied_weights_are_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embed(tokens))

    graph = compare(Tied(), (torch.tensor([[1, 5, 8]]),))
    assert len(graph.used_weights()) == 1
    assert dtype_of(graph.inputs[0].type).name == "i64"


def test_a_buffer_that_is_written_is_named_in_a_note() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(1)
            return x * self.seen

    graph = import_module(Counter(), _x(2))
    assert "'seen'" in graph.notes[0]
    assert np.array_equal(FloatEngine(graph).run({"x": np.ones(2, np.float32)})["mul"], [1, 1])


def test_inputs_and_outputs_may_be_nested() -> None:
    class Nested(nn.Module):
        def forward(self, pair: tuple[Tensor, Tensor], more: dict[str, Tensor]) -> Any:
            a, b = pair
            return {"sum": a + b, "rest": [more["c"] * 2, {"d": a}]}, b - 1

    inputs = ((_x(2), _x(2)), {"c": _x(3)})
    graph = import_module(Nested(), inputs)
    assert len(graph.inputs) == 3
    assert [port.name for port in graph.outputs][:2] == ["0.sum", "0.rest.0"]
    flat = {p.name: t.numpy() for p, t in zip(graph.inputs, (*inputs[0], inputs[1]["c"]), strict=True)}
    ours = FloatEngine(graph).run(flat)
    for mine, theirs in zip(ours.values(), outputs_of(Nested(), inputs), strict=True):
        assert np.allclose(mine, theirs)


def test_keyword_arguments() -> None:
    graph = import_module(lambda x, *, scale: x * scale, (_x(2),), {"scale": _x(2)})
    assert [port.name for port in graph.inputs] == ["x", "scale"] or len(graph.inputs) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_computed_in_float32(dtype: Any) -> None:
    module = Net().to(dtype)
    graph = import_module(module, _x(1, 3, 8, 8).to(dtype))
    assert dtype_of(graph.inputs[0].type).name == "f32"
    ours = FloatEngine(graph).run({"x": _x(1, 3, 8, 8).to(dtype).float().numpy()})["fc"]
    theirs = outputs_of(module.float(), (_x(1, 3, 8, 8).to(dtype).float(),))[0]
    close("fc", ours, theirs, 1e-5)


def test_script_modules_and_exported_programs_are_taken_too() -> None:
    module, x = Net().eval(), _x(1, 3, 8, 8)
    for form in (torch.jit.trace(module, x), torch.jit.script(module), torch.export.export(module, (x,))):
        graph = import_module(form, x)
        ours = next(iter(FloatEngine(graph).run(named(graph, (x,))).values()))
        close("fc", ours, outputs_of(module, (x,))[0], 1e-5)


def test_what_is_no_model_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidModelError, match="dict") as caught:
        import_module({"conv.weight": 1}, _x(1))
    assert "load_state_dict" in str(caught.value)
    with pytest.raises(InvalidModelError, match=r"torch\.export cannot trace"):
        import_module(lambda x: x if x.sum() > 0 else -x, _x(3))


def test_the_same_module_gives_the_same_text() -> None:
    texts = {print_graph(import_module(Net(), _x(1, 3, 8, 8))) for _ in range(2)}
    assert len(texts) == 1


# Files


def test_exported_program(tmp_path: Path) -> None:
    module, x = Net().eval(), _x(1, 3, 8, 8)
    path = _saved(tmp_path / "net.bin", module, (x,))
    graph = _same(path, module, (x,))
    assert "block.0" in import_model(path, canonical=False).tensor_names()
    assert input_names(path) == ("x",)
    report = check_model(path, graph, ImportOptions())
    assert report.passed and report.runtime == "PyTorch" and report.layers


class CausalLM(nn.Module):
    """The masks that language models build as they run: Python's operators on tensors become `aten.__and__` and its like."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1])
        seen = (place[None, :] <= place[:, None]) & (place[:, None] - place[None, :] < 4)
        seen = (seen | (place[None, :] == 0)) ^ (place[None, :] > 100)
        bits = ((place << 1) >> 1) & 7 | 8
        x = self.embed(tokens) + bits[:, None]
        q, k, v = (y.view(1, -1, 2, 8).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1], attn_mask=seen[None, None])
        scores = q @ k.transpose(-1, -2) + torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        y = y + scores.softmax(-1) @ v
        return self.head(y.transpose(1, 2).flatten(2))


def test_a_causal_language_model(tmp_path: Path) -> None:
    module = CausalLM()
    tokens = torch.randint(0, 50, (1, 8), generator=torch.Generator().manual_seed(0))
    path = _saved(tmp_path / "lm.pt2", module, (tokens,))
    with zipfile.ZipFile(path) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith("model.json"))).decode()
    operators = ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")
    assert all(f"aten.{name}." in text for name in operators)
    graph = _same(path, module, (tokens,))
    # What is hidden is a number here, so that tensor is not the original's.
    assert any(name.endswith("/masked") for name in import_model(path, canonical=False).tensor_names())
    assert check_model(path, graph, ImportOptions()).passed
    sample = {"tokens": tokens.numpy()}
    values = FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(sample)
    ranges = {name: (float(value.min()), float(value.max())) for name, value in values.items()}
    target = load_target("edge-4t")
    integer = quantize_network(graph, ranges, target=target).graph
    title = graph.outputs[0].name
    found = Simulator(compile_model(integer, target), 1).run(sample)[title]
    assert np.array_equal(found, IntegerEngine(integer, threads=1).run(sample)[title])
    assert difference(title, found, values[title]).cosine > 0.99


def test_a_causal_language_model_of_hugging_face(shared: Path) -> None:
    path = shared / "repro" / "hf_llama_tiny.pt2"
    if not path.exists():
        pytest.skip("needs the file of the repository's shared folder")
    assert check_model(path, import_model(path), ImportOptions()).passed


def test_an_open_batch_is_fixed_by_the_user(tmp_path: Path) -> None:
    module, x = Net().eval(), _x(3, 3, 8, 8)
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    path = _saved(tmp_path / "net.pt2", module, (x,), dynamic_shapes=shapes)
    single = import_model(path)
    assert shape_of(single.inputs[0].value) == (1, 3, 8, 8)
    assert single.notes == [
        "the batch of the input 'x' is open, and was taken as 1 (--input-shape changes it)"
    ]
    assert check_model(path, single, ImportOptions()).passed
    for low, axis in ((2, 0), (1, 2)):
        open_shapes = ({axis: torch.export.Dim("size", min=low, max=64)},)
        other = _saved(tmp_path / f"{axis}.pt2", nn.ReLU(), (x,), dynamic_shapes=open_shapes)
        with pytest.raises(DynamicShapeError, match=r"npuc compiles static shapes.*--input-shape") as caught:
            import_model(other)
        assert "=2,3,8,8" in str(caught.value) or axis, "the option that it names has to work"
    options = ImportOptions(input_shapes={"x": (5, 3, 8, 8)})
    graph = _same(path, module, (_x(5, 3, 8, 8),), options)
    assert "block.1" in import_model(path, options, canonical=False).tensor_names()
    assert check_model(path, graph, options).passed
    with pytest.raises(UsageError, match="fixed to 1x3x8x8"):
        import_model(
            _saved(tmp_path / "fixed.pt2", module, (_x(1, 3, 8, 8),)),
            ImportOptions(input_shapes={"x": (2, 3, 8, 8)}),
        )


class Steps(nn.Module):
    """Loops and branches, which only scripting keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.twice = True

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        kept: list[Tensor] = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            kept.append(x)
        for _ in range(3):
            if self.twice:
                x = x * 2
        return x, kept


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda m: torch.jit.trace(m, _x(2, 4))], ids=["script", "trace"]
)
def test_torchscript(make: Any, tmp_path: Path) -> None:
    module = Steps().eval()
    path = tmp_path / "steps"
    make(module).save(path)
    with pytest.raises(DynamicShapeError, match="--input-shape x="):
        import_model(path)
    options = ImportOptions(input_shapes={"x": (2, 4)})
    graph = _same(path, module, (_x(2, 4),), options)
    assert any(name.startswith("layers.0") for name in graph.weights)
    report = check_model(path, graph, options)
    assert report.passed and not report.impossible


def test_torchscript_with_integer_inputs(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3)).eval()
    tokens = torch.tensor([[1, 2, 8]])
    torch.jit.trace(module, tokens).save(tmp_path / "net.pt")
    graph = _same(tmp_path / "net.pt", module, (tokens,), ImportOptions(input_shapes={"input": (1, 3)}))
    assert dtype_of(graph.inputs[0].type).name == "i64"


@pytest.mark.parametrize(
    "part",
    [
        nn.BatchNorm2d(4),
        nn.Upsample(scale_factor=2),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        nn.InstanceNorm2d(4, affine=True),
    ],
    ids=["BatchNorm2d", "nearest", "bilinear", "InstanceNorm2d"],
)
def test_scripted_layers_that_loop_over_their_axes(part: nn.Module, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), part).eval()
    torch.jit.script(module).save(tmp_path / "net.pt")
    _same(tmp_path / "net.pt", module, (_x(1, 3, 8, 8),), ImportOptions(input_shapes={"input": (1, 3, 8, 8)}))


class Voice(nn.Module):
    """An argument that is a number, another with a default, a state, and a loop that data would end."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(4, 3), nn.Linear(4, 3)
        self.state = torch.zeros(1, 3)

    def forward(this, x: Tensor, rate: int, gain: float = 1.0) -> Tensor:
        y = this.high(x) if rate == 16000 else this.low(x)
        this.state = this.state + y
        return this.state * gain


def test_torchscript_with_a_number_for_an_input(tmp_path: Path) -> None:
    module = Voice().eval()
    path = tmp_path / "voice.jit"
    torch.jit.script(module).save(path)
    shapes = {"x": (1, 4)}
    with pytest.raises(UsageError, match=r"'rate' is an integer, not a tensor.*--constant rate="):
        import_model(path, ImportOptions(input_shapes=shapes))
    for rate, gain in ((16000, None), (8000, 0.5)):
        constants = {"rate": str(rate)} | ({} if gain is None else {"gain": str(gain)})
        options = ImportOptions(input_shapes=shapes, constants=constants)
        graph = import_model(path, options)
        assert [port.name for port in graph.inputs] == ["x"]
        layer = module.high if rate == 16000 else module.low
        (ours,) = FloatEngine(graph, threads=1).run({"x": _x(1, 4).numpy()}).values()
        assert np.allclose(ours, (layer(_x(1, 4)) * (gain or 1.0)).detach().numpy(), atol=1e-6)
        assert any("writes to 'state'" in note for note in graph.notes)
        report = check_model(path, graph, options)
        assert report.passed and not report.impossible


def test_checkpoints_are_refused_with_the_way_to_export_them(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "weights.pt")
    torch.save(Net().state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("weights.pt", "old.pt"):
        with pytest.raises(FileFormatError, match=r"torch\.export\.save.*npuc\.from_torch"):
            import_model(tmp_path / name)


def test_cifar_resnet_on_pictures(shared: Path) -> None:
    path = shared / "models/pytorch/cifar10_resnet20.torchscript.pt"
    pictures = sorted((shared / "data/cifar10/val").glob("*.png"))[:8]
    from PIL import Image

    graph = import_model(path, ImportOptions(input_shapes={"x": (1, 3, 32, 32)}))
    original = torch.jit.load(path)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    engine = FloatEngine(graph, fetch=ALL_TENSORS, threads=1)
    ranges: dict[str, tuple[float, float]] = {}
    samples = []
    for picture in pictures:
        x = ((np.asarray(Image.open(picture).convert("RGB")) / 255 - mean) / std).astype(np.float32)
        samples.append({"x": np.ascontiguousarray(x.transpose(2, 0, 1)[None])})
        found = engine.run(samples[-1])
        theirs = original(torch.from_numpy(samples[-1]["x"])).detach().numpy()
        assert difference("linear", found["linear"], theirs).cosine >= 0.99999
        for name, value in {**samples[-1], **found}.items():
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, float(value.min())), max(high, float(value.max())))
    target = load_target("edge-4t")
    integer = quantize_network(graph, ranges, target=target).graph
    compiled = compile_model(integer, target)
    assert not any(isinstance(part, CpuSubgraph) for part in compiled.subgraphs)
    for sample in samples[:2]:
        wanted = IntegerEngine(integer, threads=1).run(sample)["linear"]
        assert np.array_equal(Simulator(compiled, 1).run(sample)["linear"], wanted)
        assert wanted.argmax() == engine.run(sample)["linear"].argmax()


# Options


def test_a_network_can_be_cut_by_layer_names(tmp_path: Path) -> None:
    module, x = Net().eval(), _x(1, 3, 8, 8)
    path = _saved(tmp_path / "net.pt2", module, (x,))
    options = ImportOptions(inputs=("conv",), outputs=("act",))
    graph = import_model(path, options)
    assert [port.name for port in graph.inputs] == ["conv"] and shape_of(graph.inputs[0].value) == (
        1,
        4,
        8,
        8,
    )
    given = _x(1, 4, 8, 8)
    with torch.no_grad():
        wanted = torch.relu(module.norm(given)).numpy()
    close("act", FloatEngine(graph).run({"conv": given.numpy()})["act"], wanted, 1e-5)
    assert check_model(path, graph, options).passed
    with pytest.raises(UnknownTensorError, match="Did you mean 'conv'"):
        import_model(path, ImportOptions(outputs=("conf",)))
    with pytest.raises(UsageError, match="still need the input 'x'"):
        import_model(path, ImportOptions(inputs=("act",), outputs=("norm", "act")))


def test_an_input_can_become_a_constant(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale

    path = _saved(tmp_path / "net.pt2", Scaled(), (_x(2, 3), _x(3)))
    options = ImportOptions(constants={"scale": "1,2,3"})
    graph = import_model(path, options)
    assert [port.name for port in graph.inputs] == ["x"]
    found = FloatEngine(graph).run({"x": np.ones((2, 3), np.float32)})
    assert np.array_equal(next(iter(found.values())), [[1, 2, 3], [1, 2, 3]])
    assert check_model(path, graph, options).passed
    for bad, words in (("1,2", "2 numbers for the shape"), ("one", "not numbers")):
        with pytest.raises(UsageError, match=words):
            import_model(path, ImportOptions(constants={"scale": bad}))


def test_preprocessing_belongs_to_an_input() -> None:
    options = ImportOptions(preprocess={"x": Preprocess(mean=(1.0, 2.0, 3.0))})
    graph = npuc.from_torch(Net(), _x(1, 3, 8, 8), options=options)
    assert graph.inputs[0].preprocess is not None


# Custom ops


def test_a_function_can_be_one_op() -> None:
    @npuc.torch.custom_op("npuctests::gate")
    def gate(x: Tensor, threshold: float, times: list[int]) -> Tensor:
        return torch.where(x > threshold, x, torch.zeros(())) * times[1]

    module = lambda x: gate(torch.relu(x), 0.25, [1, 2]) + 1  # noqa: E731
    graph = compare(module, (_x(2, 5),))
    (op,) = [op for op in graph.ops if isinstance(op, top.Onnx)]
    assert (op.domain, op.op_type) == ("npuctests", "gate")
    assert op.onnx_attributes["threshold"] == 0.25 and op.onnx_attributes["times"] == (1, 2)


def test_a_custom_op_may_state_its_shape_and_compute_anything() -> None:
    @npuc.torch.custom_op("npuctests::ranks", shape=lambda x: torch.empty_like(x))
    def ranks(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy().argsort(-1).argsort(-1).astype(np.float32))

    compare(lambda x: ranks(x) * 0.5, (_x(3, 5),))


def test_an_op_that_nobody_computes_is_named() -> None:
    from npuc.kernels import custom

    graph = import_module(lambda x: torch.special.i0(x), _x(4))
    (op,) = [op for op in graph.ops if isinstance(op, top.Onnx)]
    op.properties["domain"] = top.Onnx.attribute_of("domain", "nobody.knows")
    with pytest.raises(EngineError, match=r"nobody computes the op 'nobody\.knows:"):
        FloatEngine(graph)
    assert custom.kernel_of("npuc.torch", op.op_type) is not None


@pytest.mark.parametrize("name", ["gate", "aten::gate", "a::b::c"])
def test_a_custom_op_needs_a_domain(name: str) -> None:
    with pytest.raises(UsageError):
        npuc.torch.custom_op(name)(lambda x: x)


# Without torch


@pytest.mark.parametrize(
    "copied", [Tensor.contiguous, lambda t: t.clone(memory_format=torch.contiguous_format)]
)
def test_a_view_of_a_constant_that_was_turned_and_copied(copied: Any) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(24.0).reshape(4, 6))

        def forward(self, x: Tensor) -> Tensor:
            return x + copied(self.table.transpose(0, 1)).view(-1)

    compare(Turned(), (torch.randn(2, 24),))


def test_a_number_of_a_constant_tensor(tmp_path: Path) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stride = torch.tensor([8.0, 16.0])

        def forward(self, x: Tensor) -> Tensor:
            return x * x.new_full((2, 1), self.stride[1])

    x = torch.randn(2, 3)
    torch.export.save(torch.export.export(Strided(), (x,)), tmp_path / "m.pt2")
    graph = import_model(tmp_path / "m.pt2")
    (made,) = FloatEngine(graph, threads=1).run(named(graph, (x,))).values()
    close("y", made, (16 * x).numpy(), 1e-6)


def test_npuc_itself_does_not_load_torch() -> None:
    code = "import sys, npuc, npuc.flow, npuc.torch; npuc.from_torch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_extra_is_named_when_torch_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path / "net.pt2", Net(), (_x(1, 3, 8, 8),))
    monkeypatch.setitem(sys.modules, "torch", None)
    for work in (lambda: import_model(path), lambda: npuc.from_torch(None, None)):
        with pytest.raises(MissingExtraError, match=r"pip install 'npuc\[torch\]'"):
            work()


class _Chooses(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x if x.mean() > 0 else -x


class _Speaks(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        print("a module speaks")
        return x + 1


def test_a_course_that_depends_on_values_is_refused_with_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        InvalidModelError, match=r"depends on the values of tensors \('return x if x\.mean\(\) > 0"
    ) as raised:
        import_module(_Chooses(), torch.ones(2, 3))
    assert "torch.where" in raised.value.fix and "test_torch_import.py line" in str(raised.value)
    # torch would print the program as far as it got.
    assert capfd.readouterr() == ("", "")
    import_module(_Speaks(), torch.ones(2, 3))
    assert "a module speaks" in capfd.readouterr().out
