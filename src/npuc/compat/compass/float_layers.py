"""`trigger_float_op`: layers that compute in float, by the words of the public optimizer.

    float16_preferred         activations and weights of float16
    float16_act_int_wht       weights of weight_bits integers, which are multiplied in float16
    float16_preferred!        the same, also where the vendor's library has no such layer

On a machine that computes with the type the layer is on the NPU; on any other, it computes in float32 on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.logger import say
from npuc.errors import UsageError
from npuc.quant.from_target import has_float
from npuc.target import Target

KEY = "trigger_float_op"
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
_WORD = re.compile(r"(b?float(?:16|32))_(?:(preferred)|act_(\w+)_wht)!?")


def float_levels(
    section: CfgSection, words: Mapping[str, str], levels: Mapping[str, Any], weight: str, target: Target
) -> dict[str, Any]:
    """The level of each layer that computes in float: `words` by layer, `levels` as they are stated, and the type of weights."""
    chosen: dict[str, Any] = {}
    slow: dict[str, list[str]] = {}
    for name, word in words.items():
        match = _WORD.fullmatch(word.lower())
        if word.lower() == "disable":
            continue
        if match is None or match[1] not in _TYPES:
            raise section.wrong(
                KEY,
                f"has the value '{word}', which is neither disable nor a float type and _preferred or _act_int_wht, such as "
                "float16_preferred",
            )
        if match[3] not in (None, "int"):
            raise UsageError(
                f"[{section.name}] {KEY} = {word} is not supported: npuc has no weights of {match[3]}",
                where=section.path,
                fix=f"{match[1]}_act_int_wht quantizes weights to integers of weight_bits",
            )
        own = levels.get(name)
        stated = dict(own) if isinstance(own, dict) else {}
        kind, has_integers = _TYPES[match[1]], match[3] == "int"
        if has_float(target, kind):
            chosen[name] = {"weight": weight, **stated, "activation": kind} if has_integers else kind
        else:
            chosen[name] = {**stated, "classes": ["weights"]} if has_integers else "float"
            slow.setdefault(match[1], []).append(name)
    for kind, names in slow.items():
        say(
            "W",
            f"{KEY}: {target.name} does not compute with {kind}: {_layers(names)} in float32, on the CPU",
        )
    return chosen


def _layers(names: Iterable[str]) -> str:
    every = list(names)
    shown = ", ".join(every[:4]) + (f" and {len(every) - 4} more" if len(every) > 4 else "")
    return f"{shown} {'computes' if len(every) == 1 else 'compute'}"
