"""N:M sparsity of ResNet-20 on CIFAR-10: what it costs in accuracy, and what it saves in cycles.

    python benchmarks/bench_sparsity.py train --cell 2:4 --seed 0 --device cuda   # one cell: a network and its record
    python benchmarks/bench_sparsity.py measure                                   # val, once, and cycles; the table

Cells are `dense` (fine-tuned for the same epochs with the same loss) and patterns; `2:4-fixed` has all masks from the first step
on, `2:4-unordered` leaves channels in their order. Everything is chosen on the last 3,000 of the training images; `measure`
looks at the 1,000 validation images, in float and as the integers of edge-4t. Differences are paired: the same images, the
standard error of the mean difference. A cell that is done is not run again; one that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from cifar10 import SHARED, normalized, resnet20, training_data, validation_data

ROOT = Path(__file__).resolve().parents[1]
TARGET = "edge-4t"
CELLS: dict[str, dict[str, Any]] = {
    "dense": {},
    "2:4": {"pattern": "2:4"},
    "2:4-fixed": {"pattern": "2:4", "gradual": 0.0},
    "2:4-unordered": {"pattern": "2:4", "permute": False},
    "1:4": {"pattern": "1:4"},
    "4:8": {"pattern": "4:8"},
    "4:16": {"pattern": "4:16"},
}


def train_cell(arguments: argparse.Namespace) -> None:
    """One cell."""
    import torch

    from npuc.flow import network_to_quantize
    from npuc.ir import save_graph
    from npuc.train.loop import Epoch, fit
    from npuc.train.network import TrainableNetwork
    from npuc.train.options import TrainingOptions
    from npuc.train.sparsity import sparsify

    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    name = f"{arguments.cell.replace(':', 'of')}_{arguments.seed}"
    record_path = out / f"{name}.json"
    if record_path.exists():
        print(f"{name} is done")
        return
    torch.set_num_threads(arguments.threads)
    train, held = training_data(Path(arguments.data), arguments.count)
    options = TrainingOptions(
        epochs=arguments.epochs, batch=arguments.batch, rate=arguments.rate, clip=arguments.clip, loss=arguments.loss,
        temperature=arguments.temperature, augment=True, mixup=arguments.mixup, seed=arguments.seed,
        device=arguments.device, cuda_graph=arguments.cuda_graph, weight_decay=arguments.weight_decay,
    )  # fmt: skip
    graph = network_to_quantize(resnet20())
    checkpoint = out / f"{name}.checkpoint"
    start = time.perf_counter()

    def report(epoch: Epoch) -> None:
        print(f"{name} {epoch.line}", flush=True)

    cell = CELLS[arguments.cell]
    record: dict[str, Any] = {
        "cell": arguments.cell,
        "seed": arguments.seed,
        "training": options.model_dump(),
        "samples": len(train),
    }
    if cell:
        result = sparsify(graph, train, held, options=options, checkpoint=checkpoint, report=report, **cell)
        trained, history = result.graph, result.history
        record |= {"magnitude": result.magnitude, "magnitude_unordered": result.magnitude_unordered}
    else:
        module = TrainableNetwork(graph)
        teacher = TrainableNetwork(graph)
        history = fit(
            module, train, held, options, teacher=teacher, checkpoint=checkpoint, report=report
        ).history
        trained = module.to_graph()
    save_graph(trained, out / f"{name}.mlir")
    record |= {"seconds": time.perf_counter() - start, "held": [epoch.score for epoch in history]}
    record_path.write_text(json.dumps(record, indent=1))
    checkpoint.unlink(missing_ok=True)


def measure(arguments: argparse.Namespace) -> None:
    """The validation images, in float and in integers, and cycles on a machine that skips the pattern."""
    from npuc.flow import load_model, network_to_quantize

    out = Path(arguments.out)
    images, labels = validation_data()
    original = _measured(network_to_quantize(resnet20()), images, labels)
    words = ", ".join(f"{form} {100 * original[form].mean():.2f}" for form in ("float", "int8"))
    print(f"network as it comes: {words}, {int(original['matrix']):,} matrix cycles")
    records = [json.loads(path.read_text()) for path in sorted(out.glob("*_*.json"))]
    right: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        name = f"{record['cell'].replace(':', 'of')}_{record['seed']}"
        scores = _measured(load_model(out / f"{name}.mlir"), images, labels)
        right[record["cell"], record["seed"]] = scores
        (out / f"{name}.scores.json").write_text(
            json.dumps({key: float(np.mean(value)) for key, value in scores.items()}, indent=1)
        )
    # A dense network that was trained as long is the judge; where none was, the network as it comes.
    print("| cell | seeds | float | lost | int8 | lost | matrix cycles | cycles |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for cell in CELLS:
        seeds = [seed for (name, seed) in right if name == cell]
        if not seeds:
            continue
        columns = []
        for form in ("float", "int8"):
            mean = np.mean([right[cell, seed][form].mean() for seed in seeds])
            paired = seeds if cell != "dense" else []
            lost = [right.get(("dense", s), original)[form] - right[cell, s][form] for s in paired]
            words = ""
            if lost:
                together = np.mean(lost, axis=0)
                words = f"{100 * together.mean():+.2f} ± {100 * together.std(ddof=1) / np.sqrt(len(together)):.2f}"
            columns += [f"{100 * mean:.2f}", words]
        figures = right[cell, seeds[0]]
        columns += [f"{int(figures['matrix']):,}", f"{int(figures['cycles']):,}"]
        print(f"| {cell} | {len(seeds)} | {' | '.join(columns)} |")


def _right(graph: Any, images: Any, labels: Any) -> Any:
    from npuc.train.data import TrainingData
    from npuc.train.loop import predictions
    from npuc.train.network import TrainableNetwork

    scores = predictions(TrainableNetwork(graph), TrainingData((images,), labels)).numpy()
    return (scores.argmax(1) == labels).astype(float)


def _measured(graph: Any, images: Any, labels: Any) -> dict[str, Any]:
    from npuc.calib.sources import open_data
    from npuc.codegen.compile_model import compile_program
    from npuc.engine import IntegerEngine
    from npuc.flow import quantize_on_data
    from npuc.profile.report import report_of
    from npuc.sim import simulate
    from npuc.target import Target, load_target

    data = load_target(TARGET).to_dict()
    data["compute"]["sparsity"] = ["2:4", "1:4", "4:8", "4:16"]
    target = Target.from_dict(data)
    samples = [{graph.inputs[0].name: image[None]} for image in normalized(_calibration())]
    quantized = quantize_on_data(graph, open_data(graph, samples), target=target)[0].graph
    engine = IntegerEngine(quantized)
    name = quantized.inputs[0].name
    classes = [int(np.argmax(next(iter(engine.run({name: image[None]}).values())))) for image in images]
    compiled = compile_program(quantized, target).model
    total = report_of(compiled, simulate(compiled)).total
    return {
        "float": _right(graph, images, labels),
        "int8": (np.array(classes) == labels).astype(float),
        "matrix": float(total.matrix),
        "cycles": float(total.cycles),
    }


def _calibration() -> Any:
    from PIL import Image

    paths = sorted((SHARED / "data" / "cifar10" / "calib").iterdir())[:64]
    return np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths]).transpose(0, 3, 1, 2)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--cell", choices=CELLS, default="2:4")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--epochs", type=int, default=12)
    training.add_argument("--batch", type=int, default=128)
    training.add_argument("--rate", type=float, default=0.01)
    training.add_argument("--clip", type=float, default=1.0)
    training.add_argument("--loss", default="both")
    training.add_argument("--temperature", type=float, default=2.0)
    training.add_argument("--mixup", type=float, default=0.0)
    training.add_argument("--weight-decay", type=float, default=1e-4)
    training.add_argument("--cuda-graph", action="store_true", help="replay steps as a CUDA graph")
    training.add_argument("--count", type=int, help="training images, if not all")
    training.add_argument("--device", default="cpu")
    training.add_argument("--threads", type=int, default=2)
    training.add_argument("--data", default=str(SHARED / "data" / "cifar10" / "train"))
    for command in (training, commands.add_parser("measure")):
        command.add_argument("--out", default=str(ROOT / "build" / "bench_sparsity"))
    arguments = parser.parse_args()
    train_cell(arguments) if arguments.command == "train" else measure(arguments)


if __name__ == "__main__":
    main()
