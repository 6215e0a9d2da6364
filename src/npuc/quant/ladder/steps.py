"""The steps that there are; importing this registers them."""

import npuc.quant.equalization.step  # noqa: F401
