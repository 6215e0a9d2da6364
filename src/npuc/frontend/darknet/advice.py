"""What to tell the user about heads that were cut off: the option that decodes them, with the numbers of the `.cfg`."""

from __future__ import annotations

from npuc.frontend.darknet.reader import HEADS, DarknetSource
from npuc.frontend.layered.network import NetworkLayer
from npuc.ir import Graph, is_static, shape_of


def advice(source: DarknetSource, graph: Graph) -> str:
    """One sentence; empty if no head was cut off."""
    outputs = {port.name: shape_of(port.value) for port in graph.outputs if is_static(port.value)}
    heads = [
        layer
        for layer in source.network.layers
        if layer.kind in HEADS and layer.inputs[0] in outputs and layer.name not in outputs
    ]
    if not heads:
        return ""
    # Post-processing takes the finest head first.
    heads.sort(key=lambda layer: -outputs[layer.inputs[0]][-1])
    words = f"the outputs are what goes into {', '.join(layer.name for layer in heads)}"
    option = _option(heads)
    return f"{words}; --add-postprocess {option} makes detections of them" if option else words


def _option(heads: list[NetworkLayer]) -> str:
    kinds = {layer.kind for layer in heads}
    if kinds == {"region"} and len(heads) == 1:
        return f"yolov2:anchors={_anchors(heads[0])}"
    if kinds != {"yolo"} or any(layer.data.int("new_coords") for layer in heads):
        return ""
    anchors = "/".join(_anchors(layer) for layer in heads)
    scales = [layer.data.float("scale_x_y", 1.0) for layer in heads]
    if all(scale == 1 for scale in scales):
        return f"yolov3:anchors={anchors}"
    return f"yolov4:anchors={anchors},scale_xy={'/'.join(f'{scale:g}' for scale in scales)}"


def _anchors(head: NetworkLayer) -> str:
    numbers = head.data.floats("anchors")
    pairs = [f"{w:g}x{h:g}" for w, h in zip(numbers[::2], numbers[1::2], strict=False)]
    chosen = head.data.ints("mask") if head.kind == "yolo" else ()
    return "+".join(pairs[index] for index in chosen or range(len(pairs)) if 0 <= index < len(pairs))
