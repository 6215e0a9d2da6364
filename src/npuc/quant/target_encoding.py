"""The types and weights of a prequantized file, converted to the arithmetic of a target.

A TFLite file has int8 or uint8 activations with zero points, and weights with per-channel scales or with a zero point. If the
target supports none of these, every layer would run on the CPU. So each activation type, and the weights of each layer, are
converted to a form that the target supports, from the most exact to the least exact:

    i8, zero point -5          as   u8, zero point 123          the same integers, moved by 128: exact
    u8 weights around 121      as   i8, zero point 0            exact where all differences fit, else rounded again
    per-channel scales         as   a per-tensor scale          rounded again
    any scale                  as   the next power of two       rounded again, at most one old step away

The inputs and outputs of the network keep the integers of the file; `npuc.quant.prequantized` requantizes there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import ceil, floor, log2
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.ir.dtypes import QuantType, dtype_of
from npuc.partition.fit import activation_misfit
from npuc.quant.parameters import quantize_affine_weight, quantize_weight
from npuc.quant.scheme import Scheme
from npuc.target import Target
from npuc.transform.drop_quantization import StoredConstant

_STORED = ("i8", "ui8", "i16", "i4")
_COARSEST = 2.01
"""The factor by which an 8-bit step may become coarser; beyond it 16 bits are used, if the target has them."""


class TargetEncoding:
    """Converts the types and weights of a file to those of a target."""

    def __init__(self, target: Target, wide: Collection[str] = ()) -> None:
        self.target = target
        self.wide = frozenset(wide) if self._has_wide(target) else frozenset()
        """Layers, by the names of their results, that read 16 bits and have 16-bit weights."""
        self._activations: Any = target.arithmetic.activations.formats
        self._weights: Any = target.arithmetic.weights.formats
        self._per_channel = "per_channel" in target.arithmetic.weights.granularity

    @property
    def has_unsigned(self) -> bool:
        """Whether there are unsigned activations with a zero point."""
        return "affine" in self._activations.get("u8", ())

    @staticmethod
    def _has_wide(target: Target) -> bool:
        """Whether a target multiplies 16 bits by 16 bits, with a wider accumulator."""
        arithmetic = target.arithmetic
        formats = (arithmetic.activations.formats, arithmetic.weights.formats)
        rate = target.compute.array.rate("i16", "i16")
        return (
            all("i16" in types for types in formats)
            and rate is not None
            and bool(arithmetic.accumulator.wide_bits)
        )

    def wide_activation(self, kind: QuantType) -> QuantType:
        """A 16-bit type for an 8-bit one: with the same steps, or with a power-of-two step that is much smaller."""
        least, most = kind.dtype.limits
        reach = kind.scale * max(most - kind.zero_point, kind.zero_point - least)
        if {"symmetric", "affine"} & set(self._activations.get("i16", ())):
            return QuantType.of("i16", kind.scale, 0)
        return QuantType.of("i16", self._scales("i16", reach)[-1], 0)

    def activation(self, kind: QuantType) -> QuantType:
        """The type of the target for a type of the file; the same type if the target supports it."""
        if kind.dtype.name not in _STORED or activation_misfit(kind, self.target) is None:
            return kind
        least, most = kind.dtype.limits
        if kind.dtype.itemsize == 1:
            other, moved = ("ui8", 128) if kind.dtype.name == "i8" else ("i8", -128)
            if "affine" in self._activations.get(dtype_of(other).short, ()):
                return QuantType.of(other, kind.scale, kind.zero_point + moved)
        reach = kind.scale * max(most - kind.zero_point, kind.zero_point - least)
        storages = ["i8", "i16"] if kind.dtype.itemsize == 1 else ["i16"]
        candidates = [
            QuantType.of(storage, scale, 0) for storage in storages for scale in self._scales(storage, reach)
        ]
        fine = [candidate for candidate in candidates if candidate.scale <= _COARSEST * kind.scale]
        return next(iter((*fine, *candidates)), kind)

    def _scales(self, storage: str, reach: float) -> list[float]:
        """The symmetric scales of a storage type that cover a range, the finest first."""
        kinds = self._activations.get(storage, ())
        most = dtype_of(storage).limits[1]
        scales = [float(np.float32(reach / most))] if {"symmetric", "affine"} & set(kinds) else []
        return scales + (
            [2.0 ** ceil(log2(reach / (most + 1)) - 1e-9)] if Scales.POWER_OF_TWO in kinds else []
        )

    def weights_fit(self, stored: StoredConstant) -> bool:
        """Whether the target supports weights as the file states them."""
        kinds = self._weights.get(dtype_of(stored.integers.dtype).short, ())
        powers = kinds and set(kinds) == {Scales.POWER_OF_TWO}
        return bool(
            kinds
            and (stored.scale.size == 1 or self._per_channel)
            and ("affine" in kinds or not stored.zero_point.any())
            and not (powers and (np.frexp(stored.scale)[0] != 0.5).any())
        )

    def weights(
        self,
        stored: StoredConstant,
        axis: int,
        scheme: Scheme,
        bias: Array | None,
        scale: float,
        least: float,
    ) -> tuple[Array, Array, int]:
        """Integers, scales and zero point of weights in a form that the target supports; 16 bits if the scheme says so."""
        shape = [-1 if i == stored.axis else 1 for i in range(stored.integers.ndim)]
        zeros = stored.zero_point.reshape(shape if stored.zero_point.size > 1 else ())
        steps = stored.integers.astype(np.int64) - zeros
        scales = stored.scale.astype(np.float64).reshape(-1)
        is_per_tensor = scales.size == 1
        if scheme.weight == "i16":
            if {"symmetric", "affine"} & set(self._weights["i16"]) and (is_per_tensor or self._per_channel):
                return steps.astype(np.int16), scales, 0
            form = replace(
                scheme,
                weight_scales=Scales.POWER_OF_TWO
                if Scales.POWER_OF_TWO in self._weights["i16"]
                else Scales.SYMMETRIC,
            )
            real = steps * scales.reshape(shape if not is_per_tensor else ())
            return (
                *quantize_weight(
                    real, axis, replace(form, per_channel=self._per_channel), bias, scale, least
                ),
                0,
            )
        affine = "affine" in self._weights.get("u8", ())
        symmetric = bool({"symmetric", "affine"} & set(self._weights.get("i8", ())))
        if symmetric and (is_per_tensor or self._per_channel):
            reach = np.abs(steps).max(axis=tuple(i for i in range(steps.ndim) if i != axis), initial=0)
            if reach.max(initial=0) <= 127:
                return steps.astype(np.int8), scales, 0
            if self._per_channel:
                return self._signed(steps, np.broadcast_to(scales, reach.shape), reach, axis)
        if affine and is_per_tensor and steps.max(initial=0) - steps.min(initial=0) <= 255:
            zero = int(-steps.min(initial=0))
            return (steps + zero).astype(np.uint8), scales, zero
        real = steps * scales.reshape(shape if not is_per_tensor else ())
        if affine:
            form = replace(scheme, weight="ui8", weight_scales=Scales.AFFINE, per_channel=False)
            return quantize_affine_weight(real, form, bias, scale, least)
        form = replace(
            scheme,
            weight="i8",
            weight_scales=Scales.SYMMETRIC if symmetric else Scales.POWER_OF_TWO,
            per_channel=self._per_channel,
        )
        return (*quantize_weight(real, axis, form, bias, scale, least), 0)

    @staticmethod
    def levelled(
        weights: tuple[Array, Array, int],
        axis: int,
        scheme: Scheme,
        bias: Array,
        x_scale: float,
        y_scale: float,
    ) -> tuple[Array, Array, int]:
        """Weights rescaled so that the biases fit their bits: a channel with a huge bias in steps of its accumulator gets a
        coarser scale.

        All biases of a layer are multiples of one unit. A channel whose weights are tiny relative to its bias would make that
        unit so large that other channels lose more than a quarter of an output step; a coarser scale costs it almost nothing.
        """
        integers, scales, zero = weights
        kept = 2.0 ** (scheme.bias_significant_bits - 1) - 1
        if not scheme.bias_significant_bits or scales.size == 1 or zero:
            return weights
        sums = np.abs(np.asarray(bias, np.float64).reshape(-1)) / (x_scale * scales)
        coarsest = float((x_scale * scales / y_scale).max())
        most = kept * 2.0 ** max(0, floor(log2(0.5 / coarsest)))
        wide = (scales * np.maximum(1.0, sums / most)).astype(np.float32).astype(np.float64)
        spread = (wide / scales).reshape([-1 if i == axis else 1 for i in range(integers.ndim)])
        return np.rint(integers / spread).astype(integers.dtype), np.where(wide > scales, wide, scales), 0

    def _signed(self, steps: Array, scales: Array, reach: Array, axis: int) -> tuple[Array, Array, int]:
        """Differences to a zero point as signed 8 bits; the channels that do not fit get a coarser scale."""
        factor = np.maximum(reach / 127.0, 1.0)
        wide = (scales * factor).astype(np.float32).astype(np.float64)
        spread = (wide / scales).reshape([-1 if i == axis else 1 for i in range(steps.ndim)])
        integers = np.clip(np.rint(steps / spread), -127, 127)
        return integers.astype(np.int8), wide, 0
