"""What `npuc quantize --plan` expects of the ladder, out of the results of the accuracy benchmark.

Reads benchmarks/results and writes src/npuc/quant/ladder/measured.json: pairs of decibels and points of top-1 lost, of
npuc's own results, and for each step that ran its gain (0 where it was left out) and its time in that of the same run's default.

    python benchmarks/plan_data.py
"""

from __future__ import annotations

import json
import re
from typing import Any

from accuracy_job import RESULTS
from peers import ROOT

EARLIER = RESULTS.parent / "earlier_pairs.json"
"""Pairs of networks that an earlier npuc made: whatever made the error, so many points were lost at so many decibels."""
FILE = ROOT / "src" / "npuc" / "quant" / "ladder" / "measured.json"
_KINDS = {"w8a8": "per channel", "pow2": "per tensor", "w4a8": "few bits"}
_DEFAULT = re.compile(r"default: (?P<before>-?[\d.]+) dB \((?P<seconds>[\d.]+) s\)")
_STEP = re.compile(
    r"(?P<step>\w+): (?P<before>-?[\d.]+) to (?P<after>-?[\d.]+) dB, (?P<verdict>.*) \((?P<seconds>[\d.]+) s\)"
)
_NOTHING = re.compile(r"(?P<step>\w+): nothing to do")
"""A step that does not apply under a scheme: it gains nothing and takes no time."""


def earlier_pairs() -> list[dict[str, Any]]:
    """Pairs that no result has any more. Without them the curve would end at the least decibels of today's results."""
    content: list[dict[str, Any]] = json.loads(EARLIER.read_text())
    return content


def pairs(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decibels and points lost of every result of npuc's that counts top-1."""
    return [
        {
            "name": _name(result["protocol"]),
            "sqnr": round(result["slices"]["mean"], 2),
            "lost": round(-result["to float"][0] + 0.0, 3),
            "standard_error": round(result["to float"][1], 3),
            "samples": result["protocol"]["images"],
        }
        for result in results
        if result["tool"] in ("npuc", "ladder") and result["metric"] == "top-1"
    ]


def _name(protocol: dict[str, Any]) -> str:
    words = [protocol[key] for key in ("network", "scheme", "entry")]
    return " ".join([*words, *([f"seed {protocol['seed']}"] if protocol["seed"] else [])])


def steps(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each step of each ladder gained, and its time in that of the default."""
    found = []
    for result in results:
        lines = result["notes"].get("steps", [])
        default = _DEFAULT.match(lines[0]) if lines else None
        for line in lines if default else ():
            match = _STEP.match(line) or _NOTHING.match(line)
            if match is None or default is None:
                continue
            ran = match.groupdict()
            gain = float(ran["after"]) - float(ran["before"]) if ran.get("verdict") == "kept" else 0.0
            found.append(
                {
                    "network": result["protocol"]["network"],
                    "kind": _KINDS[result["protocol"]["scheme"]],
                    "step": ran["step"],
                    "device": result["protocol"]["device"].split(":")[0],
                    "gain": round(gain, 2),
                    "time": round(float(ran.get("seconds", 0.0)) / max(0.1, float(default["seconds"])), 2),
                }
            )
    return found


def main() -> None:
    """Write the file."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    content = {"pairs": [*pairs(results), *earlier_pairs()], "steps": steps(results)}
    lines = [
        f' "{key}": [\n' + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n ]"
        for key, entries in content.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(content['pairs'])} pairs, {len(content['steps'])} steps -> {FILE}")


if __name__ == "__main__":
    main()
