"""Quantization-aware training of ResNet-20 (and a ViT) on CIFAR-10, in the integers that are deployed.

    python benchmarks/bench_qat.py train  --cell w4a4 --seed 0 --device cuda    # one cell: a network, a file of results
    python benchmarks/bench_qat.py train  --cell w4a4 --seed 0 --tool brevitas  # the same cell by a peer (`make peers-qat`)
    python benchmarks/bench_qat.py measure                                      # val, once, deployed integers; the table

Cells are float (fine-tuned for the same epochs with the same loss), w4a4, w4a8, pow2 (W8A8 with shifts alone), w2a4 and vit_w4a8.
Everything is chosen on the last 3,000 of the 30,000 training images; `measure` looks at the 1,000 validation images. Differences
are paired: the same images, the standard error of the mean difference. Peers (`qat_peers`) have the same float network, data,
loss and epochs; their deployed integers are measured as well.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from cifar10 import SHARED, training_data, validation_data

ROOT = Path(__file__).resolve().parents[1]
FIRST, LAST = "first", "last"
PEERS = ("brevitas", "torchao")

A4 = {
    "scheme": {"weight": "i4", "activation": "i4"},
    # The residual stream has 8 bits: what is multiplied has 4.
    "types": {"add": {"activation": "i8"}, "avg_pool": {"activation": "i8"}, "reshape": {"activation": "i8"}},
    "layers": {FIRST: {"weight": "i8"}, LAST: {"weight": "i8", "activation": "i8"}},
}
CONFIGS: dict[str, dict[str, Any] | None] = {
    "float": None,
    "w4a4": A4,
    "w4a8": {"scheme": {"weight": "i4"}, "layers": {FIRST: {"weight": "i8"}, LAST: {"weight": "i8"}}},
    "pow2": {"scheme": "pow2"},
    "w2a4": {**A4, "scheme": {"weight": "i2", "activation": "i4", "narrow_weights": False}},
    "vit_w4a8": {"scheme": {"weight": "i4"}, "layers": {FIRST: {"weight": "i8"}, LAST: {"weight": "i8"}}},
    "vit_float": None,
    "w8a8": {"scheme": {}},
}


def model_path(cell: str) -> Path:
    """The model that a cell starts from."""
    name = "transformers/cifar10_vit.onnx" if cell.startswith("vit") else "onnx/cifar10_resnet20.onnx"
    local = Path(os.environ.get("NPUC_MODELS", SHARED / "models")) / name
    return local if local.exists() else local.parent.parent / Path(name).name


def configuration(cell: str, graph: Any, changes: dict[str, Any] | None = None) -> Any:
    """The configuration of a cell, with the names of this network's first and last layers."""
    from npuc.quant.config import QuantizationConfig, first_and_last

    plan = CONFIGS[cell]
    if plan is None:
        return None
    plan = {**plan, **(changes or {})}
    ends = dict(zip((FIRST, LAST), first_and_last(graph), strict=True))
    kinds = {op.name.removeprefix("top.") for op in graph.ops}
    types = {kind: level for kind, level in plan.get("types", {}).items() if kind in kinds}
    layers = {ends.get(name, name): level for name, level in plan.get("layers", {}).items()}
    if plan["scheme"] == "pow2":
        layers = {}
    return QuantizationConfig.model_validate({**plan, "types": types, "layers": layers})


def module_of(
    cell: str, data: Any, changes: dict[str, Any] | None = None, scale_rate: float = 1.0
) -> tuple[Any, Any]:
    """The module to train, and the float network that it starts from."""
    from npuc.flow import network_to_quantize
    from npuc.train.network import TrainableNetwork
    from npuc.train.qat.options import QatOptions
    from npuc.train.qat.prepare import prepare

    graph = network_to_quantize(model_path(cell))
    config = configuration(cell, graph, changes)
    teacher = TrainableNetwork(graph).requires_grad_(False)
    if config is None:
        return TrainableNetwork(graph), teacher
    return prepare(
        graph, data, target=None, config=config, options=QatOptions(scale_rate=scale_rate)
    ), teacher


def peer_of(tool: str, cell: str, data: Any) -> tuple[Any, Any]:
    """A peer's module to train, and the float network that it starts from."""
    import qat_peers

    from npuc.flow import network_to_quantize
    from npuc.train.network import TrainableNetwork

    graph = network_to_quantize(model_path(cell))
    return qat_peers.NETWORKS[tool](cell, graph, data), TrainableNetwork(graph).requires_grad_(False)


def peer_groups(module: Any, weight_decay: float, scale_rate: float) -> list[dict[str, Any]]:
    """Parameter groups of a peer: weights decay; biases and scales do not."""
    named = {
        kind: [p for name, p in module.named_parameters() if name.endswith(kind)]
        for kind in (".weight", ".bias", ".value")
    }
    return [
        {"params": named[".weight"], "weight_decay": weight_decay},
        {"params": named[".bias"], "weight_decay": 0.0},
        {"params": named[".value"], "weight_decay": 0.0, "lr_factor": scale_rate},
    ]


def train(arguments: argparse.Namespace) -> None:
    """One cell."""
    import torch

    from npuc.train.checkpoint import Checkpoint, save_checkpoint
    from npuc.train.loop import accuracy, decayed, fit
    from npuc.train.options import TrainingOptions

    torch.set_num_threads(arguments.threads)
    if arguments.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arguments.tf32
        torch.backends.cudnn.benchmark = True
    data, held = training_data(Path(arguments.data), arguments.count)
    held = held[: arguments.held]
    changes = json.loads(arguments.changes) if arguments.changes else None
    peer = arguments.tool if arguments.tool != "npuc" else ""
    if peer:
        module, teacher = peer_of(peer, arguments.cell, data)
    else:
        module, teacher = module_of(arguments.cell, data, changes, arguments.scale_rate)
    options = TrainingOptions(
        epochs=arguments.epochs,
        batch=arguments.batch,
        optimizer=arguments.optimizer,
        rate=arguments.rate,
        weight_decay=arguments.weight_decay,
        loss=arguments.loss,
        temperature=arguments.temperature,
        augment=True,
        ema=arguments.ema,
        clip=arguments.clip,
        seed=arguments.seed,
        device=arguments.device,
        cuda_graph=arguments.cuda_graph,
    )
    if peer:
        groups = peer_groups(module, options.weight_decay, arguments.scale_rate)
    elif arguments.cell.split("_")[-1] == "float":
        groups = decayed(module, options.weight_decay)
    else:
        groups = module.parameter_groups(options.weight_decay)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    cell = f"{peer}_{arguments.cell}" if peer else arguments.cell
    name = f"{cell}_{arguments.seed}{arguments.tag}"
    module.to(arguments.device)
    start = time.perf_counter()
    begin = accuracy(module, held, arguments.device)
    result = fit(
        module, data, None, options, teacher=teacher, parameters=groups,
        checkpoint=(out / f"{name}.run.safetensors") if arguments.resume else None,
        report=lambda epoch: print(name, epoch.line, flush=True),
    )  # fmt: skip
    end = accuracy(module, held, arguments.device)
    record = {
        "cell": cell, "seed": arguments.seed, "tag": arguments.tag, "held_before": begin, "held": end,
        "tool": arguments.tool, "changes": changes, "options": options.model_dump(), "seconds": time.perf_counter() - start,
        "losses": [epoch.loss for epoch in result.history],
    }  # fmt: skip
    save_checkpoint(out / f"{name}.safetensors", Checkpoint(record, {"module": module.state_dict()}))
    (out / f"{name}.json").write_text(json.dumps(record))
    print(f"{name}: held {100 * begin:.2f} -> {100 * end:.2f}", flush=True)
    if arguments.measure:
        x, labels = validation_data()
        score(module.cpu(), record, x, labels, out / f"{name}.safetensors", arguments.threads)


def measure(arguments: argparse.Namespace) -> None:
    """All trained cells on the validation images: float by torch, integers by graph mode. One file of results a cell."""
    import torch

    from npuc.train.checkpoint import load_checkpoint

    torch.set_num_threads(arguments.threads)
    x, labels = validation_data()
    data, _ = training_data(Path(arguments.data), 256)
    for path in sorted(Path(arguments.out).glob("*.safetensors")):
        if path.with_suffix(".val.json").exists() or path.name.endswith(".run.safetensors"):
            continue
        saved = load_checkpoint(path)
        tool = saved.state.get("tool", "npuc")
        if tool == "npuc":
            module, _ = module_of(saved.state["cell"], data, saved.state.get("changes"))
        else:
            module, _ = peer_of(tool, saved.state["cell"].removeprefix(f"{tool}_"), data)
        module.load_state_dict(saved.tensors["module"])
        score(module, saved.state, x, labels, path, arguments.threads)
    table(Path(arguments.out))


def score(module: Any, state: Any, x: Any, labels: Any, path: Path, threads: int) -> None:
    """A trained cell on the validation images: what training saw, beside what is deployed."""
    from npuc.engine import IntegerEngine
    from npuc.train.data import TrainingData
    from npuc.train.loop import predictions

    module.eval()
    tool = state.get("tool", "npuc")
    seen = predictions(module, TrainingData((x,))).argmax(1).numpy()
    if tool != "npuc":
        import qat_peers

        best = qat_peers.deployed(tool, module, x, path.with_suffix("")).argmax(1)
    elif state["cell"].endswith("float"):
        best = seen
    else:
        graph = module.export()
        engine = IntegerEngine(graph, threads=threads)
        output, port = graph.outputs[0].name, graph.inputs[0].name
        size = module.batch_size or 1
        rows = [engine.run({port: x[at : at + size]})[output] for at in range(0, len(x), size)]
        best = np.concatenate(rows).argmax(1)
    right, trained = ((found == labels).astype(int).tolist() for found in (best, seen))
    changed = int((best != seen).sum())
    record = {**state, "right": right, "trained": trained, "changed": changed}
    path.with_suffix(".val.json").write_text(json.dumps(record))
    print(f"{path.stem}: {100 * np.mean(right):.2f}, as trained {100 * np.mean(trained):.2f}", flush=True)


def table(folder: Path) -> None:
    """Mean accuracy of the seeds, the paired difference from float, and its standard error.

    `as trained` is the accuracy of the module in eval mode, `changed` the images of which it says another class than what is
    deployed. Below it, each cell of a peer beside npuc's of the same seeds.
    """
    cells: dict[str, dict[int, Any]] = {}
    trained: dict[str, list[tuple[float, int]]] = {}
    for path in sorted(folder.glob("*.val.json")):
        record = json.loads(path.read_text())
        if "trained" in record:
            figures = 100 * float(np.mean(record["trained"])), int(record["changed"])
            trained.setdefault(record["cell"] + record.get("tag", ""), []).append(figures)
        cells.setdefault(record["cell"] + record.get("tag", ""), {})[record["seed"]] = np.array(
            record["right"], float
        )
    print(
        f"{'cell':24} {'seeds':>5} {'val top-1':>9} {'minus float':>12} {'s.e.':>6} {'as trained':>10} {'changed':>8}"
    )
    for cell, by_seed in cells.items():
        network = "vit_float" if cell.startswith("vit") else "float"
        base = next((found for name, found in cells.items() if name.startswith(network)), {})
        mean = 100 * np.mean([right.mean() for right in by_seed.values()])
        line = f"{cell:24} {len(by_seed):5d} {mean:9.2f}"
        # The paired difference of an image is its mean over the seeds.
        both = [by_seed[seed] - base[seed] for seed in by_seed if seed in base]
        if both and not cell.startswith(network):
            paired = 100 * np.mean(both, axis=0)
            error = paired.std(ddof=1) / np.sqrt(paired.size)
            line += f" {paired.mean():+12.2f} {error:6.2f}"
        else:
            line += " " * 20
        if cell in trained:
            seen, changed = (np.mean(column) for column in zip(*trained[cell], strict=True))
            line += f" {seen:10.2f} {changed:8.1f}"
        print(line)
    for cell, by_seed in cells.items():
        tool, _, rest = cell.partition("_")
        own = cells.get(rest.partition("_r")[0], {})
        both = [own[seed] - by_seed[seed] for seed in by_seed if seed in own]
        if tool in PEERS and both:
            paired = 100 * np.mean(both, axis=0)
            error = paired.std(ddof=1) / np.sqrt(paired.size)
            print(f"npuc minus {cell}: {paired.mean():+.2f} ({error:.2f}), {len(both)} seeds")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "measure", "table"])
    parser.add_argument("--cell", choices=list(CONFIGS), default="w4a4")
    parser.add_argument("--tool", choices=["npuc", *PEERS], default="npuc")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tag", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", default=str(SHARED / "data" / "cifar10" / "train"))
    parser.add_argument("--out", default=str(ROOT / "build" / "bench_qat"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--count", type=int)
    parser.add_argument("--held", type=int, default=3000, help="held images that are measured")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument(
        "--scale-rate",
        type=float,
        default=1.0,
        help="the rate of scales, relative to that of weights",
    )
    parser.add_argument("--measure", action="store_true", help="measure the cell when it is trained")
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--loss", default="both")
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--ema", type=float, default=0.0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--cuda-graph", action="store_true", help="replay steps as a CUDA graph")
    parser.add_argument("--changes", help="JSON: fields of the cell's configuration that differ")
    parser.add_argument(
        "--resume", action="store_true", help="write a checkpoint after each epoch, and go on from it"
    )
    arguments = parser.parse_args()
    {"train": train, "measure": measure, "table": lambda a: table(Path(a.out))}[arguments.what](arguments)


if __name__ == "__main__":
    main()
