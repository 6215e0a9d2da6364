"""Detectors on all images of a set that has no part for calibration: each half is measured by a network calibrated on the other.

The accuracy benchmark calibrates on 40 images of COCO and measures on the other 40. Here that is done both ways, and the
detections of all 80 images are pooled into one mAP, so that the standard error of a difference to float is that of 80 images.
No image is measured by a network that was calibrated on it. Results are files under benchmarks/results/folds, the networks of
both halves lie under build/bench/accuracy.

    python benchmarks/accuracy_folds.py yolox_nano pow2 npuc [--device cuda] [--seed 1] [--half 0] [--again]
    python benchmarks/accuracy_folds.py --table [--write-docs]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from accuracy_job import OWN, SCHEMES, measure
from accuracy_networks import COCO_CALIBRATION, FOLDER, NETWORKS, Network
from accuracy_npuc import quantize_default, quantize_ladder
from accuracy_report import TITLES, decibels
from peers import ROOT

from npuc.files import write_atomically

RESULTS = Path(__file__).resolve().parent / "results" / "folds"
DETECTORS = [name for name, network in NETWORKS.items() if network.decoder]
_DOCS = ROOT / "docs" / "quantization.md"
_MARKS = ("<!-- rows of accuracy_folds.py -->\n", "<!-- end of the folds -->\n")


def halves(name: str) -> tuple[Network, Network]:
    """A network calibrated on the first half of its images and measured on the second, and the other way round."""
    return NETWORKS[name], NETWORKS[name].swapped()


def quantized(
    name: str, scheme: str, entry: str, half: int, threads: int, device: str, seed: int, again: bool
) -> tuple[Path, dict[str, Any]]:
    """The network of one half and what was done; one that is there is taken as it is."""
    suffix = f".seed{seed}" if seed else ""
    made = FOLDER / f"{name}.{scheme}.{entry}{suffix}.half{half}.mlir"
    notes = made.with_suffix(".json")
    if again or not notes.exists():
        network, begun, worked = halves(name)[half], time.perf_counter(), time.process_time()
        arguments = (network, SCHEMES[scheme], made, COCO_CALIBRATION, threads)
        done = (
            quantize_default(*arguments)
            if entry == "npuc"
            else quantize_ladder(*arguments, device, None, seed)
        )
        seconds = {"wall": time.perf_counter() - begun, "cpu": time.process_time() - worked}
        done["seconds"] = {kind: round(value, 1) for kind, value in seconds.items()}
        with write_atomically(notes) as file:
            file.write(json.dumps(done).encode())
    result: dict[str, Any] = json.loads(notes.read_text())
    return made, result


def work(
    name: str, scheme: str, entry: str, threads: int, device: str, seed: int, again: bool, folder: Path
) -> dict[str, Any]:
    """Quantize both halves and write the pooled result."""
    made = [quantized(name, scheme, entry, half, threads, device, seed, again) for half in (0, 1)]
    parts = [(path, network.measured()) for (path, _), network in zip(made, halves(name), strict=True)]
    stated = {"network": name, "scheme": scheme, "entry": entry, "calibration": COCO_CALIBRATION}
    result = {
        "protocol": {
            **stated,
            "images": sum(len(cases) for _, cases in parts),
            "device": device,
            "seed": seed,
        },
        "metric": NETWORKS[name].metric,
        **measure(NETWORKS[name], parts, threads),
        "notes": [notes for _, notes in made],
    }
    folder.mkdir(parents=True, exist_ok=True)
    suffix = f".seed{seed}" if seed else ""
    with write_atomically(folder / f"{name}.{scheme}.{entry}{suffix}.json") as file:
        file.write((json.dumps(result, indent=1) + "\n").encode())
    return result


def line(result: dict[str, Any]) -> str:
    """A result as a row of the table."""
    stated, wide = result["protocol"], [notes["wide"] for notes in result["notes"]]
    seed = f", seed {stated['seed']}" if stated["seed"] else ""
    figure = "{:.1f} ({:+.1f} ± {:.1f})".format(result["figure"], *result["to float"])
    worst = f"{result['slices']['worst'][1]:.1f}, {result['slices']['worst sample']:.1f}"
    layers = " and ".join(str(count) for count, _ in wide) + f" of {wide[0][1]}"
    cells = [
        f"{stated['network']} {stated['scheme']}",
        TITLES[stated["entry"]] + seed,
        f"{result['float']:.1f}",
    ]
    return f"| {' | '.join([*cells, figure, f'{decibels(result):.1f}', worst, layers])} |"


def table(folder: Path = RESULTS) -> str:
    """All results in the form of the documentation."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    order = [(name, scheme, entry) for name in DETECTORS for scheme in SCHEMES for entry in OWN]
    results.sort(
        key=lambda r: (
            order.index(tuple(r["protocol"][k] for k in ("network", "scheme", "entry"))),
            r["protocol"]["seed"],
        )
    )
    head = "| network | | float | mAP (to float) | dB | worst slice, of the worst sample | layers with 16-bit activations |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *map(line, results)]) + "\n"


def write_docs(text: str) -> None:
    """Put the table where docs/quantization.md has it."""
    before, rest = _DOCS.read_text().split(_MARKS[0])
    _, after = rest.split(_MARKS[1])
    _DOCS.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{after}")


def main() -> None:
    """Do one job, or show all results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", nargs="?", choices=DETECTORS)
    parser.add_argument("scheme", nargs="?", choices=list(SCHEMES))
    parser.add_argument("entry", nargs="?", choices=OWN)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--half", type=int, choices=(0, 1), help="quantize this half only, and measure nothing"
    )
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of the result")
    parser.add_argument("--again", action="store_true", help="also networks that are there")
    parser.add_argument("--table", action="store_true", help="run nothing, show the results that there are")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/quantization.md")
    given = parser.parse_args()
    if given.table:
        print(table(given.to))
        if given.write_docs:
            write_docs(table(given.to))
        return
    if given.entry is None:
        parser.error("give a network, a scheme, and npuc or ladder")
    job = (given.network, given.scheme, given.entry)
    if given.half is not None:
        quantized(*job, given.half, given.threads, given.device, given.seed, given.again)
        return
    print(line(work(*job, given.threads, given.device, given.seed, given.again, given.to)))


if __name__ == "__main__":
    main()
