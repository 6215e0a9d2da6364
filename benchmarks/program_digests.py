"""SHA-256 of compiled programs and of their outputs, for every shared model: what a change that must change nothing is held to.

    python benchmarks/program_digests.py -o build/before.json             on the tree before
    python benchmarks/program_digests.py --against build/before.json      on the tree after

Every model of `../shared/models` is quantized on one sample of random data (or keeps its own integers), compiled for three
presets at two levels, and run once in instruction mode. The digest of a program covers its instruction streams, its weights
and its CPU subgraphs; names, versions and other metadata may change and are not covered.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from c_proof import OPTIONS, model_files, picked  # noqa: E402
from npuc.calib.random_inputs import random_inputs  # noqa: E402
from npuc.calib.sources import random_data  # noqa: E402
from npuc.codegen.compile_model import CompileOptions  # noqa: E402
from npuc.errors import NpucError  # noqa: E402
from npuc.flow import (  # noqa: E402
    compile_network,
    network_to_quantize,
    quantize_network,
    ranges_from,
    schemes_of,
)
from npuc.frontend.options import ImportOptions  # noqa: E402
from npuc.ir import Graph, top  # noqa: E402
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph  # noqa: E402
from npuc.sim import Simulator  # noqa: E402
from npuc.target import Target, load_target  # noqa: E402

TARGETS = ("edge-1t", "edge-4t", "server-32t")
LEVELS = (0, 2)


def program_digest(model: CompiledModel) -> str:
    """Of what a compiled model does, not of what it is called."""
    digest = sha256()
    for part in model.subgraphs:
        digest.update(type(part).__name__.encode())
        if isinstance(part, NpuSubgraph):
            for stream in part.streams:
                digest.update(stream.tobytes())
        elif isinstance(part, CpuSubgraph):
            digest.update(part.model)
    digest.update(model.weights.tobytes())
    return digest.hexdigest()


def integers_of(graph: Graph, target: Target) -> Graph:
    """The network with integers for a target."""
    if any(isinstance(op, top.Quantize | top.Dequantize) for op in graph.ops):
        return quantize_network(graph, None, None, target).graph
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    return quantize_network(graph, ranges, None, target).graph


def digests(name: str, path: Path) -> dict[str, str]:
    """Digests of a model by target, level and what they are of."""
    by_case: dict[str, str] = {}
    graph = network_to_quantize(path, OPTIONS.get(name, ImportOptions()))
    inputs = random_inputs(graph)
    for target_name in TARGETS:
        target = load_target(target_name)
        try:
            network = integers_of(graph, target)
            for level in LEVELS:
                key = f"{target_name} -O{level}"
                model = compile_network(network, target, CompileOptions(level)).model
                by_case[f"{key} program"] = program_digest(model)
                outputs = Simulator(model, 1).run(inputs)
                joined = b"".join(outputs[key].tobytes() for key in sorted(outputs))
                by_case[f"{key} outputs"] = sha256(joined).hexdigest()
        except NpucError as error:
            by_case[f"{target_name} refused"] = error.message
    return by_case


def _work(job: tuple[str, Path]) -> tuple[str, dict[str, str]]:
    name, path = job
    try:
        return name, digests(name, path)
    except NpucError as error:
        return name, {"refused": error.message}


def differences(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> Iterator[str]:
    """What is not as it was, in words."""
    for name in sorted(before.keys() & after.keys()):
        for key in sorted(before[name].keys() | after[name].keys()):
            was, now = before[name].get(key, "nothing"), after[name].get(key, "nothing")
            if was != now:
                yield f"{name}, {key}: {now[:60]}, before {was[:60]}"


def main() -> int:
    """Make digests, keep them, compare them; the exit status is 1 if some differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="where to keep the digests")
    parser.add_argument("--against", type=Path, help="digests of another tree")
    parser.add_argument("--models", help="only these, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    jobs = [
        (name, path) for name, path in model_files().items() if not given.models or picked(name, given.models)
    ]
    by_model: dict[str, dict[str, str]] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for name, model_digests in pool.map(_work, jobs):
            by_model[name] = model_digests
            print(
                f"{name:44} {sum(not key.endswith('refused') for key in model_digests)} digests", flush=True
            )
    total = sum(len(model_digests) for model_digests in by_model.values())
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(by_model, indent=1, sort_keys=True))
    if not given.against:
        print(f"{total} digests of {len(by_model)} models")
        return 0
    wrong = list(differences(json.loads(given.against.read_text()), by_model))
    print("\n".join(wrong))
    print(f"{total} digests of {len(by_model)} models, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
