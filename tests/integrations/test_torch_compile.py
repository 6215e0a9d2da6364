"""torch.compile(model, backend="npuc"): calibration on the fly, and everything that dynamo does behind a backend's back."""

from __future__ import annotations

import json
import threading
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from npuc.integrations.torch.backend import npuc_backend, report, reset  # noqa: E402
from npuc.integrations.torch.session import sessions as all_sessions  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.set_num_threads(1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    _BEFORE[:] = all_sessions()
    yield
    torch._dynamo.reset()


_BEFORE: list[Any] = []


def sessions() -> list[Any]:
    """The graphs of this test; those of others may be alive in tracebacks."""
    return [session for session in all_sessions() if session not in _BEFORE]


class Net(nn.Module):
    """A convolution, a norm and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


def net() -> Any:
    return Net().eval().requires_grad_(False)


def images(rows: int = 2) -> Any:
    return torch.randn(rows, 3, 6, 6)


def compiled(model: Any, calls: int = 4, *, dynamic: bool | None = None, **options: Any) -> Any:
    options = {
        "calibrate": calls,
        "target": "edge-4t",
        "level": 0,
        "method": "max",
        "fallback": False,
        **options,
    }
    return torch.compile(model, backend=npuc_backend, options=options, dynamic=dynamic)


def calibrated(model: Any, make: Any = images, calls: int = 4, **options: Any) -> Any:
    """A compiled model whose first graph has been swapped in."""
    fast = compiled(model, calls, **options)
    with torch.no_grad():
        for _ in range(calls):
            fast(make())
    assert states() == ["npu"]
    return fast


def states() -> list[str]:
    """For each graph: `npu` if a program has taken its place, else why torch computes it."""
    shown = []
    for session in sessions():
        rest = session.report().rest
        kept = [node for node in rest if node.device == "framework"]
        shown.append(kept[0].reason if kept else "npu")
    return shown


def close(found: Any, wanted: Any, tolerance: float = 0.05) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    scale = float(wanted.abs().max().float()) or 1.0
    error = float((found.float() - wanted.float()).abs().max()) / scale
    assert 0 < error < tolerance or (error == 0 and not found.is_floating_point()), error


def test_torch_computes_the_first_calls_and_npuc_the_others() -> None:
    model = net()
    fast = compiled(model, 3)
    with torch.no_grad():
        for call in range(3):
            x = images()
            assert torch.equal(fast(x), model(x)), call
        x = images()
        close(fast(x), model(x))
    assert states() == ["npu"]


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["npuc"].partition(":")
    assert getattr(import_module(module), name) is npuc_backend


def test_a_batch_of_another_size_uses_the_samples_that_are_there() -> None:
    model = net()
    fast = calibrated(model)
    with torch.no_grad():
        fast(images(5))
        for rows in (5, 3, 7):
            x = images(rows)
            close(fast(x), model(x))
    assert states() == ["npu", "npu"]


@pytest.mark.slow
def test_rows_that_depend_on_each_other_are_not_taken_apart() -> None:
    def centred(x: Any, weight: Any) -> Any:
        return (x - x.mean(0)) @ weight

    weight = torch.randn(6, 6)
    fast = compiled(centred, dynamic=True)
    with torch.no_grad():
        for rows in (4, 5):
            for _ in range(5):
                x = torch.rand(rows, 6)
                found = fast(x, weight)
            close(found, centred(x, weight), 0.2)


@pytest.mark.slow
def test_python_numbers_that_vary_are_bound() -> None:
    model = net()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for _ in range(5):
            x = images()
            found = fast(x)
        close(found, model(x))

    def scaled(x: Any, factor: float) -> Any:
        return torch.relu(x) * factor

    torch._dynamo.reset()
    fast = compiled(scaled, 2, dynamic=True)
    with torch.no_grad():
        for factor in (0.5, 2.0):
            for _ in range(3):
                x = torch.randn(4, 8)
                found = fast(x, factor)
            close(found, scaled(x, factor))


@pytest.mark.slow
def test_static_shapes_have_a_graph_each() -> None:
    model = net()
    fast = compiled(model, 2, dynamic=False)
    with torch.no_grad():
        for rows in (1, 2):
            for _ in range(3):
                x = images(rows)
                found = fast(x)
            close(found, model(x))
    assert states() == ["npu", "npu"]


def test_weights_that_are_written_are_seen() -> None:
    model = net()
    fast = calibrated(model)
    other = Net().state_dict()
    model.load_state_dict({name: tensor * 2 for name, tensor in other.items()})
    with torch.no_grad():
        x = images()
        assert torch.equal(fast(x), model(x))
        for _ in range(4):
            x = images()
            found = fast(x)
        close(found, model(x))
        model.head.weight.mul_(-1)
        assert torch.equal(fast(x), model(x))


@pytest.mark.slow
def test_a_write_that_torch_does_not_count_needs_a_reset() -> None:
    model = net()
    fast = calibrated(model)
    model.head.weight.data.mul_(-3)
    reset(fast)
    x = images()
    with torch.no_grad():
        assert torch.equal(fast(x), model(x))


@pytest.mark.filterwarnings("ignore:npuc")
def test_a_graph_that_writes_into_an_argument_stays_in_torch() -> None:
    def doubled(x: Any) -> Any:
        x.mul_(2)
        return torch.relu(x) + 1

    fast = compiled(doubled, 1)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4)
            copy = x.clone()
            assert torch.equal(fast(x), doubled(copy)) and torch.equal(x, copy)
    assert states() == ["it writes into its argument 'x'"]


@pytest.mark.filterwarnings("ignore:npuc")
def test_a_model_in_training_stays_in_torch() -> None:
    model = Net().train()
    fast = compiled(model, 1)
    with torch.no_grad():
        fast(images())
        fast(images())
    assert int(model.norm.num_batches_tracked) == 2
    assert "writes into its argument 'norm." in states()[0]


def test_gradients_flow_and_a_warning_says_why_torch_computes() -> None:
    model = Net().eval()
    fast = compiled(model, 1)
    with pytest.warns(UserWarning, match=r"torch.no_grad\(\)"):
        fast(images())
    for _ in range(2):
        fast(images()).sum().backward()
    assert model.head.weight.grad is not None
    assert "gradients are wanted" in states()[0]
    assert report(fast).nodes[0].lever.startswith("Call the model inside torch.no_grad()")
    with torch.no_grad():
        for _ in range(2):
            x = images()
            found = fast(x)
        close(found, model(x))
    assert states()[1] == "npu"


@pytest.mark.filterwarnings("ignore:npuc")
def test_a_graph_that_draws_random_numbers_stays_in_torch() -> None:
    fast = compiled(lambda x: nn.functional.dropout(torch.relu(x), 0.5, training=True), 1)
    with torch.no_grad():
        x = torch.ones(64)
        assert not torch.equal(fast(x), fast(x))
    assert states() == ["it draws random numbers"]


def test_inference_mode_works() -> None:
    model = net()
    fast = compiled(model, 2)
    with torch.inference_mode():
        for _ in range(3):
            x = images()
            found = fast(x)
        close(found, model(x))
    assert states() == ["npu"]


@pytest.mark.filterwarnings("ignore:npuc")
def test_a_write_is_seen_in_inference_mode_too() -> None:
    fast = compiled(lambda x: torch.relu(x.add_(1)), 1)
    with torch.inference_mode():
        x = torch.zeros(3)
        fast(x)
        fast(x)
        assert x.tolist() == [2, 2, 2]
    assert states() == ["it writes into its argument 'x'"]


def test_a_graph_break_makes_two_programs() -> None:
    model = net()

    def broken(x: Any) -> Any:
        x = torch.relu(model.conv(x))
        torch._dynamo.graph_break()
        return model.head(x.flatten(1))

    fast = compiled(broken, 3)
    with torch.no_grad():
        for _ in range(4):
            x = images()
            found = fast(x)
        close(found, broken(x))
    assert states() == ["npu", "npu"]
    assert report(model).graphs == 2


def test_results_keep_their_structure() -> None:
    weight = torch.randn(6, 4)

    def several(x: Any) -> Any:
        y = torch.relu(x @ weight)
        return {
            "y": y, "view": y.view(-1), "same": y, "input": x, "none": None, "rows": x.shape[0],
            "class": y.argmax(1), "total": y.sum(), "weight": weight,
        }  # fmt: skip

    fast = compiled(several, 3)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(3, 6)
            found = fast(x)
        wanted = several(x)
    assert found.keys() == wanted.keys()
    assert found["input"] is x and found["weight"] is weight and found["none"] is None and found["rows"] == 3
    for name in ("y", "view", "same", "total"):
        close(found[name], wanted[name])
    assert found["total"].shape == () and found["class"].dtype == torch.int64
    assert torch.equal(found["y"].view(-1), found["view"])
    assert len(sessions()) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_short_floats_come_back_as_they_were(dtype: Any) -> None:
    model = net().to(dtype)
    fast = calibrated(model, lambda: images().to(dtype))
    with torch.no_grad():
        x = images().to(dtype)
        close(fast(x), model(x))


@pytest.mark.slow
def test_channels_last_stays_so() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval().to(memory_format=torch.channels_last)

    def make() -> Any:
        return images().contiguous(memory_format=torch.channels_last)

    fast = calibrated(model, make)
    with torch.no_grad():
        x = make()
        found = fast(x)
        close(found, model(x))
        assert found.stride() == model(x).stride()


def test_batches_with_nan_do_not_calibrate_and_are_named() -> None:
    model = net()
    fast = compiled(model, 3)
    with torch.no_grad():
        for call in range(4):
            x = images()
            if call == 1:
                x[0, 0, 0, 0] = torch.nan
            fast(x)
        x = images()
        close(fast(x), model(x))
    assert "call 2 does not calibrate: input 'x' has values that are NaN or infinite" in str(report(fast))


def test_nothing_but_nan_is_a_reason_to_stay() -> None:
    fast = compiled(net(), 1)
    with torch.no_grad(), pytest.warns(UserWarning, match="none of 4 calls could calibrate"):
        for _ in range(4):
            fast(torch.full((2, 3, 6, 6), torch.nan))


@pytest.mark.slow
def test_conversion_in_a_thread_leaves_the_calls_alone() -> None:
    model = net()
    fast = compiled(model, 2, background=True)
    with torch.no_grad():
        fast(images()), fast(images())
        for thread in [each for each in threading.enumerate() if each.name == "npuc"]:
            x = images()
            assert torch.equal(fast(x), model(x)) or states() == ["npu"]
            thread.join(60)
        x = images()
        close(fast(x), model(x))


@pytest.mark.slow
def test_data_at_hand_is_used_at_the_first_call() -> None:
    model = net()
    fast = compiled(model, data=[images(8) for _ in range(2)])
    with torch.no_grad():
        fast(images())
        x = images()
        close(fast(x), model(x))
    assert "calibrated on 2 samples" in str(report(fast))


@pytest.mark.slow
def test_several_threads_get_what_one_gets() -> None:
    model = net()
    fast = calibrated(model)
    inputs = [images() for _ in range(8)]
    with torch.no_grad():
        wanted = [fast(x) for x in inputs]
    wrong: list[int] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(10):
                wrong.extend(i for i, x in enumerate(inputs) if not torch.equal(fast(x), wanted[i]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_an_op_without_a_rule_is_left_to_torch_and_reported() -> None:
    def spectrum(x: Any) -> Any:
        return torch.relu(x @ torch.eye(8) * 2), torch.digamma(x)

    fast = compiled(spectrum, 2)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 8)
            found = fast(x)
        close(found[0], spectrum(x)[0])
        assert torch.allclose(found[1], spectrum(x)[1], rtol=1e-3)
    rest = sessions()[0].report().rest
    assert [node.kind for node in rest] == ["digamma"] and rest[0].reason


def test_a_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(Exception, match=r"there is no option 'calibrat'. Did you mean 'calibrate'\?"):
        torch.compile(net(), backend=npuc_backend, options={"calibrat": 3})(images())
    with pytest.raises(Exception, match="option 'calibrate' cannot be 0"):
        torch.compile(net(), backend=npuc_backend, options={"calibrate": 0})(images())
    with pytest.raises(Exception, match="no mode 'max-autotune'"):
        torch.compile(net(), backend=npuc_backend, mode="max-autotune")(images())
    with pytest.raises(Exception, match="edge-5t"):
        torch.compile(net(), backend=npuc_backend, options={"target": "edge-5t"})(images())


@pytest.mark.slow
def test_what_cannot_be_converted_stays_in_torch() -> None:
    fast = compiled(lambda x: torch.linalg.det(x), 1, fallback=True, scheme="int8", accuracy_drop=1.0)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.randn(3, 4, 4)
        fast(x)
        assert torch.equal(fast(x), torch.linalg.det(x))
    assert [w for w in caught if "stays in torch" in str(w.message)]


@pytest.mark.slow
def test_the_report_of_a_model_is_written(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    model = net()
    calibrated(model, report=str(file))
    values = json.loads(file.read_text())
    assert values["npu_share"] == 1.0 and values["graphs"] >= 1 and values["integration"] == "torch.compile"
    assert str(report(model)).startswith("torch.compile for edge-4t: ")


@pytest.mark.slow
def test_an_accuracy_goal_without_labels() -> None:
    model = net()
    fast = calibrated(model, lambda: images(8), accuracy_drop=20.0)
    with torch.no_grad():
        x = images(8)
        close(fast(x), model(x))
