"""Advice: whether quantization-aware training or N:M sparsity fit a network; that on pruning is in `pruning.advice`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from npuc.ir import Graph, dtype_of
from npuc.quant.analysis.analyze import CLOSE
from npuc.quant.layer_schemes import LayerSchemes
from npuc.target import Target
from npuc.train.sparsity.masks import prunable_weights
from npuc.words import counted

_SHORT = 8
"""Layers of fewer bits than this are mentioned."""


@dataclass(frozen=True)
class TrainingAdvice:
    """What is advised on a method, in words that a command prints."""

    title: str
    advised: bool
    words: tuple[str, ...]
    """Why, and what to expect, a sentence each."""

    @property
    def text(self) -> str:
        """All of it as sentences."""
        sentences = ". ".join(words[0].upper() + words[1:] for words in self.words)
        return f"{self.title}: {sentences}."

    def as_json(self) -> dict[str, Any]:
        """The advice as data."""
        return {"advised": self.advised, "words": list(self.words)}


def advise_qat(scheme_of: LayerSchemes, distance: float) -> TrainingAdvice:
    """Quantization-aware training, by the bits of the layers and the decibels between outputs and float."""
    short = sum(
        scheme is not None
        and scheme.needs_ranges
        and min(dtype_of(scheme.weight).bits, dtype_of(scheme.activation).bits) < _SHORT
        for scheme in scheme_of.by_op.values()
    )
    words = [
        f"outputs are {distance:.0f} dB from float" if isfinite(distance) else "outputs are those of float"
    ]
    if short:
        words.append(f"{counted(short, 'layer', 'has', 'have')} fewer than {_SHORT} bits")
    advised = distance < CLOSE
    words.append(
        "'npuc train qat' trains on the deployed integers; without labels, take '--loss distillation'"
        if advised
        else "calibration suffices, and training has little to bring back"
    )
    return TrainingAdvice("Quantization-aware training", advised, tuple(words))


def advise_sparsity(graph: Graph, target: Target | None) -> TrainingAdvice:
    """N:M sparsity, by the patterns that the machine skips and the layers that can have them."""
    title = "Sparsity"
    if target is None:
        return TrainingAdvice(
            title, False, ("it pays off on machines that skip zeros: name one by '--target'",)
        )
    if not target.compute.sparsity:
        return TrainingAdvice(
            title, False, (f"the machine {target.name} skips no zeros: sparse weights are not faster",)
        )
    # The pattern that loses least accuracy: most values kept, and the longest blocks to choose them from.
    pattern = max(target.compute.sparsity, key=lambda p: (p.kept / p.block, p.block))
    entries = prunable_weights(graph, pattern)
    able = sum(not entry.reason for entry in entries)
    if not able:
        return TrainingAdvice(title, False, (f"no layer has whole blocks of {pattern.block} input channels",))
    words = (
        f"{able} of {counted(len(entries), 'weight')} can be {pattern} sparse, which {target.name} multiplies in "
        f"{pattern.kept / pattern.block:.0%} of the matrix cycles",
        f"'npuc train sparsify --pattern {pattern}' trains with masks",
    )
    return TrainingAdvice(title, True, words)
