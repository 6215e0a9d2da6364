"""`opt_template.json`: the settings of every layer after quantization, to be changed and given back as opt_config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npuc.arithmetic.kinds import Scales
from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.layers import nodes_of
from npuc.files import write_atomically
from npuc.flow import Quantized
from npuc.ir import result_names, top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.quant.scheme import Scheme


def write_template(done: Quantized, section: CfgSection, path: Path) -> None:
    """Write the settings of the layers that are quantized."""
    content = {}
    nodes = nodes_of(done.source)
    for op in done.source.ops:
        if not isinstance(op, TopOp) or isinstance(op, top.WeightOp) or not op.results:
            continue
        scheme = done.scheme_of(op)
        if scheme is not None and not scheme.has_no_integers:
            name = result_names(op)[0]
            settings = _settings(scheme, section) | {"just_for_display": _display(done, op, name)}
            content[nodes.get(name, name)] = settings
    with write_atomically(path) as out:
        out.write((json.dumps(content, indent=4) + "\n").encode())


def _settings(scheme: Scheme, section: CfgSection) -> dict[str, Any]:
    unit = "channel" if scheme.per_channel else "tensor"
    span = "restricted" if scheme.narrow_weights else "full"
    activation = (
        "per_tensor_asymmetric"
        if scheme.activation_scales is Scales.AFFINE
        else f"per_tensor_symmetric_{'restricted' if scheme.narrow_activations else 'full'}_range"
    )
    return {
        "histc_bins": section.integer("histc_bins", 2048, 2, 1 << 16),
        "q_bits_activation": _bits(scheme.activation),
        "q_bits_bias": scheme.wide_bias_bits if scheme.wide else scheme.bias_bits,
        "q_bits_weight": _bits(scheme.weight),
        "q_mode_activation": activation,
        "q_mode_weight": f"per_{unit}_symmetric_{span}_range",
        "running_statistic_momentum": section.number("running_statistic_momentum", 0.9, 0.0, 0.999999),
    }


def _bits(kind: str) -> int:
    return int("".join(filter(str.isdigit, kind)))


def _display(done: Quantized, op: Any, name: str) -> dict[str, str]:
    value = done.graph.find(name)
    kind = None if value is None else quant_of(value)
    if kind is None:
        return {
            "quantization_info": "{}",
            "optimization_info": "",
            "brief_info": op.name.removeprefix("top."),
        }
    least, most = kind.dtype.limits
    info = {
        "scale": 1.0 / kind.scale,
        "zerop": -kind.zero_point,
        "qbits": _bits(kind.dtype.name),
        "dtype": kind.dtype.numpy.name,
        "qmin": least,
        "qmax": most,
        "qinvariant": False,
    }
    return {
        "quantization_info": json.dumps({name: info}),
        "optimization_info": "",
        "brief_info": op.name.removeprefix("top."),
    }
