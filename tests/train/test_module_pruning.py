"""A user's own torch module, pruned, elastic and sparse: names stay, and what is cut computes what is masked."""

from __future__ import annotations

import io
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuc.arithmetic.sparsity import SparsityPattern  # noqa: E402
from npuc.errors import TrainingError, UsageError  # noqa: E402
from npuc.train.modules.channels import ModuleChannels  # noqa: E402
from npuc.train.modules.elastic import ElasticModule, search_subnets  # noqa: E402
from npuc.train.modules.resizing import with_state  # noqa: E402
from npuc.train.modules.sparse import dense_weights, sparse_module  # noqa: E402


class Net(torch.nn.Module):  # type: ignore[misc]
    """A residual block, a depthwise and a grouped convolution, a transposed one, a norm of groups and a linear layer."""

    def __init__(self, flat: bool = True) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(8)
        self.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, groups=8)
        self.up = torch.nn.ConvTranspose2d(8, 8, 2, 2)
        self.norm = torch.nn.GroupNorm(4, 8)
        self.fc = torch.nn.Linear(8 * 16, 4)
        self.flat = flat

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.bn(self.stem(x)))
        x = x + self.conv2(torch.relu(self.bn1(self.conv1(x))))
        x = self.norm(self.up(self.depthwise(torch.nn.functional.max_pool2d(x, 2))))
        return self.fc(x.flatten(1) if self.flat else x.view(-1, 128))


def trained_net(**options: Any) -> Any:
    """With statistics and affine parameters that are not those of the begin."""
    torch.manual_seed(0)
    net = Net(**options).eval()
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.running_mean)
            torch.nn.init.uniform_(part.running_var, 0.5, 2)
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.normal_(part.bias)
    return net


IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def channels() -> ModuleChannels:
    return ModuleChannels(trained_net(), IMAGES[:1])


def difference(a: Any, b: Any) -> float:
    with torch.no_grad():
        return float((a.eval()(IMAGES) - b.eval()(IMAGES)).abs().max())


def train(module: Any, steps: int = 3) -> None:
    optimizer = torch.optim.Adam(module.parameters(), 1e-2, weight_decay=1e-2)
    module.train()
    for _ in range(steps):
        optimizer.zero_grad()
        module(IMAGES).square().sum().backward()
        optimizer.step()


def test_groups_have_the_names_of_submodules(channels: ModuleChannels) -> None:
    sizes = {group.name: group.size for group in channels.dependencies.groups}
    # The grouped convolution ties channels of its two halves; the norm keeps pairs of channels together.
    assert sizes == {"stem": 4, "conv1": 4, "up": 4}
    assert "depthwise" in channels.dependencies.group("stem").layers


def test_the_slim_module_computes_what_the_masked_one_does(channels: ModuleChannels) -> None:
    before = {name: tensor.clone() for name, tensor in channels.module.state_dict().items()}
    selection = channels.dropped({"stem": 2, "conv1": 3, "up": 3})
    masked, slim = channels.masked(selection), channels.slim(selection)
    assert difference(masked, slim) < 1e-5 and difference(masked, channels.module) > 0.01
    assert slim.state_dict().keys() == before.keys()
    assert (slim.stem.out_channels, slim.depthwise.groups, slim.conv2.groups) == (4, 4, 2)
    assert (slim.conv1.in_channels, slim.conv1.out_channels) == (4, 6)
    assert (slim.up.in_channels, slim.up.out_channels, slim.norm.num_groups) == (4, 6, 3)
    assert slim.fc.in_features == 6 * 16 and slim.bn.num_features == 4
    assert all(torch.equal(before[name], tensor) for name, tensor in channels.module.state_dict().items())


def test_masked_channels_stay_zero_while_any_loop_trains(channels: ModuleChannels) -> None:
    selection = channels.dropped({"stem": 2, "conv1": 3})
    masked = channels.masked(selection)
    train(masked)
    slim = channels.slim(selection)
    slim.load_state_dict(masked.slim_state_dict())
    assert difference(masked, slim) < 1e-5 and difference(slim, channels.module) > 0.01
    # Whatever is written there, such as the weights of before, is zero when it runs.
    whole = deepcopy(masked)
    whole.load_state_dict(channels.module.state_dict())
    assert difference(whole, channels.slim(selection)) < 1e-5
    # A copy has a slim state of its own; without pruning, the state of the slim module makes one of the original.
    copy = deepcopy(masked)
    torch.nn.init.zeros_(copy.fc.weight)
    assert not copy.slim_state_dict()["fc.weight"].any() and masked.slim_state_dict()["fc.weight"].any()
    assert difference(with_state(Net(), masked.slim_state_dict()), slim) < 1e-6
    # It is pruned further with the channels that are zero going first.
    further = ModuleChannels(masked, IMAGES[:1])
    assert set(selection["stem"]) <= set(further.dropped({"stem": 1})["stem"])
    torch.save(masked, io.BytesIO())


def test_widths_keep_a_share_of_the_multiply_adds(channels: ModuleChannels) -> None:
    widths = channels.widths(0.5)
    assert 0.2 < channels.macs(widths) / channels.costs.whole <= 0.5
    assert channels.macs(widths) == pytest.approx(channels.costs.exact(widths))
    with pytest.raises(UsageError, match="between 0 and 1"):
        channels.widths(1.5)


def test_excluded_submodules_keep_their_channels(channels: ModuleChannels) -> None:
    names = [group.name for group in channels.excluding(["depthwise"]).dependencies.groups]
    assert names == ["conv1", "up"]
    with pytest.raises(UsageError, match="there is no layer 'nothing'"):
        channels.excluding(["nothing"])


def test_sensitivity_is_kept_in_a_file_whatever_the_weights_are(
    channels: ModuleChannels, tmp_path: Path
) -> None:
    calls: list[Any] = []

    def evaluate(module: Any) -> float:
        calls.append(module)
        return 10 - difference(module, channels.module)

    path = tmp_path / "net.sens"
    first = channels.sensitivity(evaluate, path)
    assert first.base.score == 10 and len(calls) == 1 + sum(len(g.points) for g in first.groups.values())
    points = first.groups["stem"].points
    assert points[1].divergence == pytest.approx((10 - points[1].score) / 10) and points[1].divergence > 0
    other = channels.over(Net())
    assert other.sensitivity(evaluate, path).groups["stem"].points == points
    assert channels.widths(0.6, first) != {}
    with pytest.raises(UsageError, match="another model"):
        channels.excluding(["up"]).sensitivity(evaluate, path)


def test_candidates_are_calibrated_and_ranked(channels: ModuleChannels) -> None:
    calibrated: list[Any] = []
    ranked = channels.candidates(
        0.6, 4, lambda module: -difference(module, channels.module), calibrated.append
    )
    assert len(calibrated) == len(ranked) and [c.score for c in ranked] == sorted(
        (c.score for c in ranked), reverse=True
    )
    assert all(candidate.macs <= 0.6 * channels.costs.whole for candidate in ranked)


def test_what_cannot_be_cut_says_why(channels: ModuleChannels) -> None:
    net = trained_net(flat=False)
    fixed = ModuleChannels(net, IMAGES[:1])
    with pytest.raises(TrainingError, match=r"does not run(.|\n)*flatten\(1\)"):
        fixed.slim(fixed.dropped({"up": 2}))
    assert difference(fixed.masked(fixed.dropped({"up": 2})), net) > 0
    with pytest.raises(UsageError, match="nothing would be left"):
        channels.masked({"up": [0, 1, 2, 3]})
    with pytest.raises(TrainingError, match="'bias' is missing in the state"):
        with_state(torch.nn.Linear(2, 2), {"weight": torch.ones(2, 2)})
    with pytest.raises(TrainingError, match="cannot get other sizes: it is a LSTM"):
        state = torch.nn.LSTM(2, 3).state_dict()
        with_state(torch.nn.LSTM(2, 3), {name: tensor[:6] for name, tensor in state.items()})


def test_subnets_share_weights_and_are_cut_out(channels: ModuleChannels) -> None:
    elastic = ElasticModule(channels, {"stem": [4, 2], "conv1": [4, 3, 2]})
    assert difference(elastic, channels.module) == 0
    elastic.active = elastic.smallest
    elastic.train()(IMAGES).sum().backward()
    gone = elastic.channels.dropped(elastic.smallest)["conv1"][0]
    gradients = elastic.module.conv1.weight.grad.abs().sum((1, 2, 3))
    assert gradients[gone] == 0 and gradients.max() > 0
    train(elastic)
    cut = elastic.cut(elastic.smallest)
    assert difference(elastic, cut) < 1e-5 and cut.conv1.out_channels == 4
    with pytest.raises(UsageError, match="no width 3 for 'stem'"):
        elastic.cut({"stem": 3, "conv1": 4})


def test_a_search_finds_the_best_subnet_of_each_range(channels: ModuleChannels) -> None:
    elastic = ElasticModule(channels, {"stem": [4, 3, 2], "conv1": [4, 3, 2]})
    least, most = (channels.macs(widths) for widths in (elastic.smallest, elastic.largest))
    middle = (least + most) / 2
    ranges = [(0.0, middle), (middle, most)]
    # The best subnet is the one with the most multiply-adds: a wide one, for every range.
    best = search_subnets(
        elastic, ranges, lambda module: channels.macs(module.active), population=9, generations=4
    )
    every = [
        channels.macs({"stem": a, "conv1": b})
        for a in elastic.choices["stem"]
        for b in elastic.choices["conv1"]
    ]
    for (low, high), subnet in zip(ranges, best, strict=True):
        assert subnet is not None and subnet.macs == max(macs for macs in every if low <= macs <= high)
    assert elastic.active == elastic.largest
    with pytest.raises(UsageError, match="no subnet has between"):
        search_subnets(elastic, [(most * 2, most * 3)], lambda module: 0.0, population=1, generations=0)


def test_sparse_weights_stay_sparse_in_any_loop() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 4),
    )
    sparse = sparse_module(
        net, SparsityPattern(2, 4), exclude=["4"], activation_sparsity=0.5, least_channels=16
    )
    train(sparse)
    plain = dense_weights(sparse)
    assert sparse.state_dict().keys() == net.state_dict().keys() == plain.state_dict().keys()
    assert not any(part._forward_pre_hooks for part in plain.modules())
    weight = plain[2].weight.detach().numpy()
    assert SparsityPattern(2, 4).holds(weight) and np.count_nonzero(weight) == weight.size / 2
    assert plain[0].weight.all() and plain[4].weight.all()
    assert difference(sparse, plain) > 0  # activations are whole again
    with pytest.raises(TrainingError, match="no layer of the module can be 2:4 sparse"):
        sparse_module(net, SparsityPattern(2, 4), least_channels=1000)
    with pytest.raises(UsageError, match="no submodule 'head'"):
        sparse_module(net, SparsityPattern(2, 4), exclude=["head"])
