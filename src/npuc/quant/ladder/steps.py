"""Registers npuc's own steps by importing them."""

import npuc.quant.adaquant.step
import npuc.quant.equalization.step
import npuc.quant.gptq.step
import npuc.quant.mixed_precision.step
import npuc.quant.output_ranges.step
import npuc.quant.rounding.step  # noqa: F401
