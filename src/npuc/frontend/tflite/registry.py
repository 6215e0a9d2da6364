"""Import rules by operator: `@rule("CONV_2D")` above a function is all it takes to add one.

A rule gets a `TfliteContext` and returns the operator's outputs in order: values (with a layout where they are images), or
arrays where an output is constant. Outputs that the model quantizes are quantized by the importer, so a rule deals in
reals unless it only moves elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value
from npuc.registries import Registry

Outcome = Value | LayoutTensor | np.ndarray[Any, Any]
Rule = Callable[[TfliteContext], Outcome | Sequence[Outcome]]

RULES: Registry[str, Rule] = Registry(
    "an import rule for the TFLite operator", provider="npuc.frontend.tflite.rules"
)
"""By operator; a custom operator goes by its custom code."""
rule = RULES.register
find_rule = RULES.get
