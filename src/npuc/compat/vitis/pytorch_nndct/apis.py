"""`pytorch_nndct.apis`: what programs import."""

from npuc.compat.vitis.pytorch_nndct.inspector import Inspector
from npuc.compat.vitis.pytorch_nndct.quantizer import dump_xmodel, load_vai_ops, torch_quantizer

__all__ = ["Inspector", "dump_xmodel", "load_vai_ops", "torch_quantizer"]
