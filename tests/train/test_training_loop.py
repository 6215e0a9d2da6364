"""The training loop: it learns, gives the same numbers for a seed, and goes on after an interruption as if there was none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import FileFormatError, TrainingError, UsageError
from npuc.ir import Graph, tensor_type, top
from npuc.train.data import TrainingData, load_data
from npuc.train.options import TrainingOptions

torch = pytest.importorskip("torch")

from npuc.train.augmentation import augmented, mixed, padded  # noqa: E402
from npuc.train.loop import Epoch, accuracy, fit  # noqa: E402
from npuc.train.network import TrainableNetwork  # noqa: E402


def samples(count: int = 96, seed: int = 0) -> TrainingData:
    """Images whose class is the brightest of three quarters."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    images = random.normal(0, 0.3, (count, 2, 6, 6)).astype("f4")
    for image, label in zip(images, labels, strict=True):
        image[:, 3 * (label // 2) : 3 * (label // 2) + 3, 3 * (label % 2) : 3 * (label % 2) + 3] += 1
    return TrainingData((images,), labels)


def network(seed: int = 0, *, batch_norm: bool = False) -> Graph:
    """A convolution and a product, with a batch norm between them if that is asked for."""
    random = np.random.default_rng(seed)
    graph = Graph.empty([("x", tensor_type((1, 2, 6, 6), "f32"))])

    def weight(name: str, array: Any) -> Any:
        graph.block.add_op(op := graph.add_weight(name, np.asarray(array, "f4")))
        return op.output

    def add(op: Any) -> Any:
        graph.block.add_op(op)
        return op.results[0]

    kernel = weight("k", random.normal(0, 0.3, (4, 2, 3, 3)))
    y = add(
        top.Conv.make(
            graph.inputs[0].value, kernel, weight("b", np.zeros(4)), strides=(3, 3), pads=(1, 1, 1, 1),
            dilations=(1, 1), group=1, relu=not batch_norm, relu_limit=0.0, name="conv",
        )
    )  # fmt: skip
    if batch_norm:
        rows = [weight(name, values) for name, values in (("s", np.ones(4)), ("o", np.zeros(4)))]
        rows += [weight("mean", np.zeros(4)), weight("variance", np.ones(4))]
        y = add(top.BatchNorm.make(y, *rows, epsilon=1e-5, name="norm"))
    y = add(top.Reshape.make(y, shape=(1, 16), name="flat"))
    matrix = weight("m", random.normal(0, 0.3, (16, 3)))
    y = add(top.MatMul.make(y, matrix, weight("c", np.zeros(3)), name="logits"))
    graph.set_outputs([("logits", y)])
    graph.verify()
    return graph


FAST = TrainingOptions(epochs=4, batch=16, rate=0.05)


@pytest.mark.parametrize(
    "change", [{}, {"optimizer": "adamw", "rate": 0.01}, {"ema": 0.9}, {"batch": 32, "clip": 1.0}]
)
def test_it_learns_and_repeats_itself(change: dict[str, Any]) -> None:
    options = FAST.model_copy(update=change)
    histories, weights = [], []
    for _ in range(2):
        module = TrainableNetwork(network())
        histories.append(fit(module, samples(), samples(60, 1), options).history)
        weights.append(module.body.weight("k").detach().clone())
    assert accuracy(module, samples(60, 1)) > 0.9
    assert [e.loss for e in histories[0]] == [e.loss for e in histories[1]]
    assert torch.equal(*weights)


def test_distillation_needs_no_labels() -> None:
    teacher = TrainableNetwork(network())
    fit(teacher, samples(), None, FAST)
    student = TrainableNetwork(network(5))
    unlabelled = TrainingData(samples().inputs)
    options = FAST.model_copy(update={"loss": "distillation", "epochs": 6, "rate": 0.1})
    result = fit(student, unlabelled, TrainingData(samples(60, 1).inputs), options, teacher=teacher)
    assert accuracy(student, samples(60, 1)) > 0.9
    scores = [epoch.score for epoch in result.history]
    assert all(score is not None and score < 0 for score in scores) and result.best == max(scores)
    assert "validation loss" in result.history[-1].line and "-0.0" not in result.history[-1].line


def test_samples_of_another_shape_are_refused() -> None:
    data = samples()
    images = data.inputs[0]
    module = TrainableNetwork(network())
    for wrong in (images[:, :1], images[:, 0]):
        with pytest.raises(
            UsageError, match=r"takes samples of the shape \[.*\], and those of the data have"
        ):
            fit(module, (wrong, data.labels), None, FAST)
        with pytest.raises(UsageError, match="takes samples of the shape"):
            fit(module, data, (wrong, data.labels), FAST)
    with pytest.raises(UsageError, match="the network has 1 input, and the data has 2"):
        fit(module, ((images, images), data.labels), None, FAST)


def test_a_run_that_was_killed_ends_with_the_numbers_of_one_that_was_not(tmp_path: Path) -> None:
    """A child process kills itself in the third epoch, right after a checkpoint of the second."""
    options = FAST.model_copy(update={"ema": 0.9, "epochs": 4})
    whole = TrainableNetwork(network())
    expected = fit(whole, samples(), samples(60, 1), options)
    text = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r}); sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from test_training_loop import *
torch.set_num_threads({torch.get_num_threads()})  # the order of float sums depends on it
def before(epoch, step, steps):
    if epoch == 3 and step == 2: os.kill(os.getpid(), signal.SIGKILL)
fit(TrainableNetwork(network()), samples(), samples(60, 1), TrainingOptions(**{options.model_dump()!r}),
    before_step=before, checkpoint={str(tmp_path / "run.safetensors")!r})
"""
    ended = subprocess.run(
        [sys.executable, "-c", text], env=dict(os.environ), check=False, capture_output=True
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    module = TrainableNetwork(network())
    result = fit(module, samples(), samples(60, 1), options, checkpoint=tmp_path / "run.safetensors")
    assert result.resumed == 2
    assert [e.loss for e in result.history] == [e.loss for e in expected.history]
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, dict(module.named_parameters())[name])
    again = fit(module, samples(), samples(60, 1), options, checkpoint=tmp_path / "run.safetensors")
    assert again.resumed == 4 and len(again.history) == 4


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "run.safetensors"
    fit(TrainableNetwork(network()), samples(), None, FAST, checkpoint=place)
    with pytest.raises(UsageError, match=r"other options \(rate, seed\)"):
        other = FAST.model_copy(update={"seed": 1, "rate": 0.5})
        fit(TrainableNetwork(network()), samples(), None, other, checkpoint=place)
    with pytest.raises(UsageError, match="another network"):
        fit(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 3)),
            samples(),
            None,
            FAST,
            checkpoint=place,
        )
    place.write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="no checkpoint"):
        fit(TrainableNetwork(network()), samples(), None, FAST, checkpoint=place)


def test_it_stops_early_and_keeps_the_best() -> None:
    module = TrainableNetwork(network())
    scores: list[float] = []
    options = TrainingOptions(epochs=40, batch=16, rate=0.05, patience=2, keep="best")
    held = samples(60, 1)
    result = fit(module, samples(), held, options, report=lambda epoch: scores.append(epoch.score or 0.0))
    assert result.stopped_early and len(result.history) < 40
    assert accuracy(module, held) == max(scores) == result.best


def test_batch_norms_use_the_batch_until_they_are_frozen() -> None:
    module = TrainableNetwork(network(batch_norm=True))
    x = torch.from_numpy(samples().inputs[0]) * 3 + 1
    module.train()
    live = module(x)
    assert module.body.weight("mean").abs().max() > 0.01
    module.freeze_batch_norms()
    frozen, mean = module(x), module.body.weight("mean").clone()
    module.eval()
    assert torch.equal(module(x), frozen) and not torch.allclose(live, frozen)
    assert torch.equal(module.body.weight("mean"), mean)
    assert np.array_equal(module.to_graph().weights.array("mean"), mean.numpy())


def test_errors_say_what_to_do() -> None:
    data = samples()
    with pytest.raises(TrainingError, match="nothing to train"):
        fit(TrainableNetwork(network()).requires_grad_(False), data, None, FAST)
    with pytest.raises(TrainingError, match="not a finite number in epoch 1"):
        fit(TrainableNetwork(network()), TrainingData((data.inputs[0] * np.nan,), data.labels), None, FAST)

    class Detached(TrainableNetwork):
        def forward(self, x: Any) -> Any:
            return super().forward(x).detach()

    with pytest.raises(TrainingError, match="has no gradient"):
        fit(Detached(network()), data, None, FAST)
    with pytest.raises(UsageError, match="needs the class of each sample"):
        fit(TrainableNetwork(network()), data.inputs[0], None, FAST)
    with pytest.raises(UsageError, match="different numbers of samples"):
        TrainingData((data.inputs[0],), np.zeros(5))
    with pytest.raises(UsageError, match=r"shape \[96, 3\], .* argmax"):
        fit(TrainableNetwork(network()), (data.inputs[0], np.eye(3)[data.labels]), None, FAST)
    with pytest.raises(UsageError, match="'epochs'"):
        TrainingOptions.checked(epochs=-1)
    with pytest.raises(UsageError, match="between 1 and 95"):
        data.split(96)


def test_images_are_cropped_from_their_border() -> None:
    images = np.arange(2 * 3 * 4 * 4, dtype="f4").reshape(2, 3, 4, 4) + 1
    wide = torch.from_numpy(padded(images, 2, (-1.0, -2.0, -3.0)))
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        part = augmented(wide, 2, generator)
        assert part.shape == images.shape
        for channel in range(3):
            known = {*images[:, channel].ravel().tolist(), -1.0 - channel}
            assert set(part[:, channel].ravel().tolist()) <= known
    still = augmented(torch.from_numpy(images), 0, torch.Generator().manual_seed(0)).numpy()
    for image, original in zip(still, images, strict=True):
        assert np.array_equal(image, original) or np.array_equal(image, original[:, :, ::-1])


def test_data_sets_of_classes_become_arrays(tmp_path: Path) -> None:
    data = samples(10)
    np.savez(tmp_path / "train.npz", x=data.inputs[0], labels=data.labels)
    read = load_data(network(), tmp_path / "train.npz", max_count=7)
    assert len(read) == 7 and read.labels is not None
    assert (
        np.array_equal(read.inputs[0], data.inputs[0][:7])
        and read.labels.tolist() == data.labels.tolist()[:7]
    )
    train, held = read.split(2)
    assert len(train) == 5 and len(held) == 2


def test_an_epoch_is_one_line() -> None:
    assert Epoch(3, 10, 0.25, None, 0.01, 4.2).line == "epoch  3/10  loss 0.2500  rate 0.01  4.2 s"


def test_a_checkpoint_knows_what_decided_its_numbers(tmp_path: Path) -> None:
    place = tmp_path / "run.safetensors"
    fit(TrainableNetwork(network()), samples(), None, FAST, checkpoint=place, settings={"pattern": "2:4"})
    with pytest.raises(UsageError, match=r"other options \(pattern\)"):
        fit(TrainableNetwork(network()), samples(), None, FAST, checkpoint=place, settings={"pattern": "1:4"})


def test_labels_that_are_no_class_are_refused() -> None:
    data = samples()
    assert data.labels is not None
    for label in (100, -1):
        wrong = TrainingData(data.inputs, np.where(np.arange(len(data)) == 3, label, data.labels))
        with pytest.raises(UsageError, match=f"the label {label} is none of the 3 classes .* 1 of 96 labels"):
            fit(TrainableNetwork(network()), wrong, None, FAST)
    with pytest.raises(UsageError, match=r"1 of 1 sample cannot .* at least two samples"):
        data[:1].split(1)


def test_samples_are_mixed_in_pairs_with_their_classes() -> None:
    images = torch.eye(4).reshape(4, 1, 2, 2)
    labels = torch.tensor([0, 1, 2, 3])
    for shape in (0.2, 1.0):
        (mixtures,), shares = mixed([images], labels, 5, shape, torch.Generator().manual_seed(3))
        assert torch.allclose(shares.sum(1), torch.ones(4))
        assert torch.allclose(mixtures.reshape(4, 4), shares[:, :4])
        assert not torch.equal(mixtures, images)


def test_numbers_that_are_no_floats_are_not_mixed() -> None:
    data = TrainingData((np.zeros((4, 3), np.int64),), np.zeros(4, np.int64))
    with pytest.raises(UsageError, match="only inputs of floating-point numbers can be mixed"):
        fit(torch.nn.Linear(3, 2), data, None, TrainingOptions(mixup=1.0))
