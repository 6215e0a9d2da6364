"""The page of an exploration: one HTML file with its data, style and script in it, which asks the network for nothing.

It shows the front in any two figures, what each parameter does, and the target file of any machine of the space. Text of models
and targets gets into it as JSON only, and onto the screen as text only.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from npuc.explore.exploration import Exploration
from npuc.explore.figures import FIGURES
from npuc.explore.sensitivity import sensitivities


def explore_page(exploration: Exploration) -> str:
    """The page."""
    # In a script element only "<" can end the text; JSON may spell it otherwise.
    data = json.dumps(page_data(exploration), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = (files("npuc.explore") / "web" / "explore.html").read_text(encoding="utf-8")
    return page.replace("/*DATA*/", data, 1)


def page_data(exploration: Exploration) -> dict[str, Any]:
    """What the page shows, as plain values."""
    space = exploration.space
    base = space.base.to_dict()
    return {
        "base": {key: value for key, value in base.items() if key not in ("name", "description", "extends")},
        "baseName": space.base.name,
        "namePrefix": space.name(0)[:-1],
        "parameters": [
            {
                "name": parameter.name,
                "values": list(parameter.values),
                "changes": [parameter.change(value) for value in parameter.values],
            }
            for parameter in space.parameters
        ],
        "figures": list(FIGURES),
        "objectives": list(exploration.objectives),
        "networks": [{"name": network.name, "weight": network.weight} for network in exploration.networks],
        "numbers": [int(number) for number in exploration.numbers],
        "bounds": [[_short(value) for value in row] for row in exploration.bounds],
        "reached": {
            str(machine): [_short(value) for value in row] for machine, row in exploration.reached.items()
        },
        "measured": {
            f"{machine},{place}": vars(each) for (machine, place), each in exploration.measured.items()
        },
        "front": exploration.front,
        "open": len(exploration.search.open),
        "failed": {str(machine): why for machine, why in exploration.search.failed.items()},
        "refused": len(exploration.refused),
        "proven": exploration.is_proven,
        "level": exploration.options.level,
        "sensitivity": {
            name: [None if row is None else [_short(value) for value in row] for row in rows]
            for name, rows in sensitivities(space, exploration.numbers, exploration.bounds).items()
        },
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")
