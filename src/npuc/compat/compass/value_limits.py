"""`trim_infinity_before_statistic`: from where on values are overflows, and not data, for all layers or for single ones.

clip(-100, 100)                                 # all layers: values beyond count as the limits
(-inf, 65504):second                            # values beyond are left out
[Softmax:(-100,inf):clip, Add:(-9,9):second]    # by the type of layer
[(3,7):(-100,inf):clip]                         # by the number of layer
clip(-9,9) & <[Softmax]:clip(-100,100)>         # all layers, and exceptions
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from npuc.calib.limits import ValueLimits
from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.per_layer import IrLayer, PerLayer, parse_per_layer

KEY = "trim_infinity_before_statistic"
_LIMITS = r"\(([^,()]*),([^,()]*)\):(clip|second)"
_WHOLE = re.compile(rf"(clip|second)\(([^,()]*),([^,()]*)\)|{_LIMITS}")
_LISTED = re.compile(rf"(\(\d+,\d+\)|\w+):({_LIMITS})(?:,|$)")


def value_limits(
    section: CfgSection, layers: Sequence[IrLayer]
) -> ValueLimits | Mapping[str, ValueLimits] | None:
    """The limits of all tensors, or of those of single layers; None if there are none."""
    text = section.text(KEY).replace(" ", "")
    if not text:
        return None
    if text.startswith("["):
        inside = text.removeprefix("[").removesuffix("]")
        if not text.endswith("]") or _LISTED.sub("", inside):
            raise section.wrong(
                KEY, "is no list such as [Softmax:(-100,inf):clip] or [(3,7):(-100,inf):clip]"
            )
        rules = tuple(("list", match[1], match[2]) for match in _LISTED.finditer(inside))
        stated = PerLayer("", rules)
    else:
        stated = parse_per_layer(section, KEY)
    default = _limits(section, stated.default.replace(" ", "")) if stated.default else None
    own = {
        name: _limits(section, value.replace(" ", "")) for name, value in stated.exceptions(layers).items()
    }
    if not own:
        return default
    everywhere = {layer.name: default for layer in layers} | own
    return {name: limits for name, limits in everywhere.items() if limits is not None}


def _limits(section: CfgSection, text: str) -> ValueLimits | None:
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise section.wrong(KEY, "is not second(min,max) or clip(min,max)")
    how = match[1] or match[6]
    try:
        low, high = float(match[2] or match[4]), float(match[3] or match[5])
    except ValueError:
        raise section.wrong(KEY, "has limits that are no numbers") from None
    if not low <= 0 <= high:
        raise section.wrong(KEY, "does not hold 0")
    return None if low == -np.inf and high == np.inf else ValueLimits(low, high, clips=how == "clip")
