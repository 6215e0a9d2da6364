"""Channel pruning of ResNet-20 on CIFAR-10 by the cycles of `edge-1t`, by multiply-adds, and by torch-pruning.

    python benchmarks/bench_pruning.py peer --keep 0.75                          # torch-pruning (own environment): an ONNX file
    python benchmarks/bench_pruning.py prune --cell cycles60 --device cuda       # one cell: a slim network and its record
    python benchmarks/bench_pruning.py measure                                   # val, once, and cycles; the table

A cell is a way to choose channels and a budget. All cells start from the same network, train for the same number of epochs
with the same options, and choose on the last 3,000 of the training images; `measure` looks at the 1,000 validation images.
Differences are paired: the same images, the standard error of the mean difference. A cell that is done is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from cifar10 import SHARED, resnet20, training_data, validation_data

ROOT = Path(__file__).resolve().parents[1]
CELLS: dict[str, dict[str, Any]] = {
    "float": {},
    "cycles60": {"budget": "cycles=0.6"},
    "cycles50": {"budget": "cycles=0.5"},
    "macs60": {"budget": "macs=0.6", "snap": False},
    "macs50": {"budget": "macs=0.5", "snap": False},
    "macs40": {"budget": "macs=0.4", "snap": False},
    "onestep60": {"budget": "cycles=0.6", "method": "one-step"},
    "onestep50": {"budget": "cycles=0.5", "method": "one-step"},
    "ofa60": {"budget": "cycles=0.6", "method": "once-for-all", "work": "ofa"},
    "ofa50": {"budget": "cycles=0.5", "method": "once-for-all", "work": "ofa"},
    "peer60": {"network": "peer60.onnx"},
    "peer50": {"network": "peer50.onnx"},
    "edge4t_cycles60": {"budget": "cycles=0.6", "target": "edge-4t"},
}
"""Cells without a budget only train: the network, or one that another tool cut. Those of once-for-all share a super-net."""


def prune_cell(arguments: argparse.Namespace) -> None:
    """One cell."""
    import torch

    from npuc.flow import network_to_quantize
    from npuc.ir import save_graph
    from npuc.target import load_target
    from npuc.train.options import TrainingOptions
    from npuc.train.pruning.budget import Budget
    from npuc.train.pruning.options import PruningOptions
    from npuc.train.pruning.prepared import PruningTask

    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    name = f"{arguments.cell}_{arguments.seed}"
    if (out / f"{name}.json").exists():
        print(f"{name} is done")
        return
    torch.set_num_threads(arguments.threads)
    if arguments.device != "cpu":
        torch.backends.cudnn.benchmark = True
    cell = CELLS[arguments.cell]
    method = cell.get("method", "iterative")
    train, held = training_data(Path(arguments.data), arguments.count)
    # The same number of epochs for every cell: the iterative method spends some after its first steps.
    between = arguments.between if method == "iterative" and "budget" in cell else 0
    epochs = arguments.epochs - between * (arguments.steps - 1)
    training = TrainingOptions(
        epochs=epochs,
        batch=arguments.batch,
        rate=arguments.rate,
        weight_decay=arguments.weight_decay,
        loss=arguments.loss,
        temperature=arguments.temperature,
        augment=True,
        mixup=arguments.mixup,
        precision=arguments.precision,
        cuda_graph=arguments.device != "cpu",
        clip=arguments.clip,
        seed=arguments.seed,
        device=arguments.device,
    )
    options = PruningOptions(
        steps=arguments.steps,
        epochs_between=between,
        candidates=arguments.candidates,
        snap=cell.get("snap", True),
        seed=arguments.seed,
        samples=arguments.samples,
        kernels=False,
        generations=5,
        population=10,
    )
    graph = network_to_quantize(resnet20())
    start = time.perf_counter()

    def report(line: str) -> None:
        print(f"{name} {time.perf_counter() - start:.0f} s: {line}", flush=True)

    record: dict[str, Any] = {
        "cell": arguments.cell,
        "seed": arguments.seed,
        "training": training.model_dump(),
    }
    budget = Budget.parse(cell.get("budget", "macs=1"))
    task = PruningTask(
        graph,
        train,
        held,
        budget,
        load_target(cell.get("target", "edge-1t")),
        options,
        training,
        work_dir=out / f"{cell.get('work', arguments.cell)}_{arguments.seed}.work",
        report=report,
    )
    if "budget" in cell:
        from npuc.train.pruning.api import _METHODS

        result = _METHODS[method](task)
        record |= result.as_json()
        slim = result.graph
    else:
        if "network" in cell:
            graph = network_to_quantize(resnet20().parent / cell["network"])
        task.work_dir.mkdir(parents=True, exist_ok=True)
        slim = task.fine_tuned(graph, task.work_dir / "training.safetensors")
        record["score"] = task.final_score(slim)
    record["seconds"] = time.perf_counter() - start
    save_graph(slim, out / f"{name}.mlir")
    (out / f"{name}.json").write_text(json.dumps(record))
    print(f"{name}: held {100 * record['score']:.2f}, {record.get('ratio', 1):.3f} of the cost", flush=True)


def measure(arguments: argparse.Namespace) -> None:
    """All cells on the validation images, and their cycles; one file of results a cell."""
    from npuc.flow import network_to_quantize
    from npuc.ir import load_graph
    from npuc.target import load_target
    from npuc.train.data import TrainingData
    from npuc.train.loop import predictions
    from npuc.train.network import TrainableNetwork
    from npuc.train.pruning.budget import CycleCost, MacCost

    x, labels = validation_data()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    networks = {"original": network_to_quantize(resnet20())}
    networks |= {path.stem: load_graph(path) for path in sorted(out.glob("*.mlir"))}
    for name, graph in networks.items():
        path = out / f"{name}.val.json"
        if path.exists():
            continue
        best = predictions(TrainableNetwork(graph), TrainingData((x,))).argmax(1).numpy()
        figures = {
            "right": (best == labels).astype(int).tolist(),
            "macs": MacCost().whole(graph),
            **{target: CycleCost(load_target(target)).whole(graph) for target in ("edge-1t", "edge-4t")},
        }
        path.write_text(json.dumps(figures))
    table(out)


def table(out: Path) -> None:
    """Accuracy, the paired difference from the network as it comes, and what is left of cycles and multiply-adds."""
    records = {
        path.name[: -len(".val.json")]: json.loads(path.read_text())
        for path in sorted(out.glob("*.val.json"))
    }
    base = records["original"]
    print(f"{'cell':18} {'val':>6} {'change':>7} {'s.e.':>5} {'edge-1t':>8} {'edge-4t':>8} {'macs':>6}")
    for name, record in records.items():
        right = np.array(record["right"], float)
        paired = 100 * (right - np.array(base["right"], float))
        error = paired.std(ddof=1) / np.sqrt(paired.size)
        shares = [record[key] / base[key] for key in ("edge-1t", "edge-4t", "macs")]
        print(
            f"{name:18} {100 * right.mean():6.2f} {paired.mean():+7.2f} {error:5.2f} "
            f"{shares[0]:8.1%} {shares[1]:8.1%} {shares[2]:6.1%}"
        )


def peer(arguments: argparse.Namespace) -> None:
    """torch-pruning on the TorchScript's network: uniform ratios by L2 magnitude over its dependency groups."""
    import torch
    import torch_pruning

    class Block(torch.nn.Module):  # type: ignore[misc]
        """A residual block whose shortcut pads channels; torch-pruning needs it as a 1x1 convolution."""

        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1)
            self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1)
            self.shortcut = (
                torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
            )

        def forward(self, x: Any) -> Any:
            y = self.conv2(torch.relu(self.conv1(x)))
            return torch.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    class Network(torch.nn.Module):  # type: ignore[misc]
        """ResNet-20 with its batch norms folded."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1)
            widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
            self.blocks = torch.nn.Sequential(*(Block(*width) for width in widths))
            self.linear = torch.nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            y = self.blocks(torch.relu(self.conv1(x)))
            return self.linear(torch.nn.functional.avg_pool2d(y, 8).flatten(1))

    network = Network()
    weights = np.load(arguments.weights)
    convolutions = [network.conv1]
    for block in network.blocks:
        convolutions += [block.conv1, block.conv2]
    with torch.no_grad():
        for number, layer in enumerate([*convolutions, network.linear]):
            weight = torch.from_numpy(weights[f"w{number}"])
            layer.weight.copy_(weight if weight.shape == layer.weight.shape else weight.T)
            layer.bias.copy_(torch.from_numpy(weights[f"b{number}"]))
        for block in network.blocks:
            if block.shortcut is not None:
                outputs, inputs = block.shortcut.weight.shape[:2]
                block.shortcut.weight.zero_()
                border = (outputs - inputs) // 2
                for channel in range(inputs):
                    block.shortcut.weight[border + channel, channel] = 1
    example = torch.zeros(1, 3, 32, 32)
    before, _ = torch_pruning.utils.count_ops_and_params(network, example)
    pruner = torch_pruning.pruner.MagnitudePruner(
        network,
        example,
        importance=torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=1 - arguments.keep,
        ignored_layers=[network.linear],
        round_to=arguments.round_to,
    )
    pruner.step()
    after, _ = torch_pruning.utils.count_ops_and_params(network, example)
    torch.onnx.export(network.eval(), (example,), arguments.out, opset_version=17, dynamo=False)
    print(f"{after / before:.3f} of the multiply-adds: {arguments.out}")


def weights_for_peer(arguments: argparse.Namespace) -> None:
    """The weights of the network in the order of its layers, for the environment of the peer, which has no npuc."""
    from npuc.flow import network_to_quantize
    from npuc.ir import top

    graph = network_to_quantize(resnet20())
    arrays: dict[str, Any] = {}
    for op in graph.ops:
        if isinstance(op, top.Conv | top.MatMul):
            number = len(arrays) // 2
            arrays[f"w{number}"] = graph.constant(op.operands[1])
            arrays[f"b{number}"] = graph.constant(op.bias)
    np.savez(arguments.weights, **arrays)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prune", "measure", "table", "peer", "peer-weights"])
    parser.add_argument("--cell", choices=list(CELLS), default="cycles60")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", default=str(SHARED / "data" / "cifar10" / "train"))
    parser.add_argument("--out", default=str(ROOT / "build" / "bench_pruning"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--count", type=int, help="train on so many images")
    parser.add_argument("--samples", type=int, default=1000, help="images that candidates are measured on")
    parser.add_argument("--between", type=int, default=10, help="epochs after each step but the last")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--clip", type=float, default=2.0)
    parser.add_argument("--loss", default="distillation")
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--mixup", type=float, default=1.0)
    parser.add_argument("--precision", default="float32")
    parser.add_argument(
        "--keep", type=float, default=0.75, help="the share of channels that torch-pruning keeps"
    )
    parser.add_argument("--round-to", type=int, default=8)
    parser.add_argument("--weights", default="peer_weights.npz")
    arguments = parser.parse_args()
    commands = {
        "prune": prune_cell,
        "measure": measure,
        "table": lambda given: table(Path(given.out)),
        "peer": peer,
        "peer-weights": weights_for_peer,
    }
    commands[arguments.what](arguments)


if __name__ == "__main__":
    main()
