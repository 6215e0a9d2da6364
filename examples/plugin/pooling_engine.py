"""A plugin for an accelerator beside the NPU: a pooling engine that takes whole chains of max pools.

It claims ops, gets each subgraph that they form as a program of its own, turns it into bytes, and runs those.
"""

import json

import numpy as np

from npuc.plugins.api import Accelerator, add_accelerator, quant_of, shape_of, top


def claims(op, graph, target):
    """Max pools of quantized images, undilated."""
    return (
        isinstance(op, top.MaxPool)
        and quant_of(op.x) is not None
        and len(shape_of(op.x)) == 4
        and set(op.dilations) == {1}
    )


def compile_pools(graph):
    """Windows, and which tensor each reads: 0 is the first input, results are counted on."""
    numbers = {port.value: index for index, port in enumerate(graph.inputs)}
    steps = []
    for op in graph.ops:
        numbers[op.results[0]] = len(numbers)
        window = {"kernel": op.kernel, "strides": op.strides, "pads": op.pads, "shape": shape_of(op.y)}
        steps.append({"reads": numbers[op.x], **window})
    return json.dumps({"steps": steps, "gives": [numbers[port.value] for port in graph.outputs]}).encode()


def run(program, arrays):
    """The results, to the bit: padding never wins."""
    told = json.loads(program)
    tensors = list(arrays)
    for step in told["steps"]:
        (kh, kw), (sh, sw), (top_, left, _, _) = step["kernel"], step["strides"], step["pads"]
        x = tensors[step["reads"]]
        n, c, out_h, out_w = step["shape"]
        low = np.iinfo(x.dtype).min
        room = (n, c, (out_h - 1) * sh + kh + top_ + x.shape[2], (out_w - 1) * sw + kw + left + x.shape[3])
        padded = np.full(room, low, x.dtype)
        padded[:, :, top_ : top_ + x.shape[2], left : left + x.shape[3]] = x
        y = np.full((n, c, out_h, out_w), low, x.dtype)
        for i in range(kh):
            for j in range(kw):
                y = np.maximum(
                    y, padded[:, :, i : i + out_h * sh : sh, j : j + out_w * sw : sw][:, :, :out_h, :out_w]
                )
        tensors.append(y)
    return [tensors[number] for number in told["gives"]]


add_accelerator(Accelerator("pooling_engine", claims, compile_pools, run))
