"""Post-processing appended to a network: which of its outputs are which, and what the new outputs are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.frontend.postprocess.heads import Head, with_anchors, with_priors, with_sides
from npuc.frontend.postprocess.nodes import Nodes, append_nodes, ints
from npuc.frontend.postprocess.options import PostprocessOptions
from npuc.frontend.postprocess.select import detections
from npuc.ir import Graph
from npuc.ir.dtypes import dtype_of, shape_of
from npuc.ir.graph import Port


def add_postprocess(graph: Graph, options: PostprocessOptions) -> None:
    """Replace the outputs of a network by what post-processing makes of them.

    Detectors get `boxes`, `scores`, `classes` and `count`; softmax keeps the names of outputs; topk gives `values` and
    `indices` of the one output.
    """
    nodes = Nodes()
    for port in graph.outputs:
        if dtype_of(port.type).name != "f32":
            raise _misfit(options, f"output '{port.name}' is not of float32")
    known = {f"output/{index}": port.value for index, port in enumerate(graph.outputs)}
    if options.kind in ("softmax", "topk"):
        outputs = _scores(graph, nodes, options)
    else:
        if options.kind == "ssd":
            boxes, scores, batch, classes = _ssd(graph, nodes, options)
        else:
            boxes, scores, batch, classes = _yolo(graph, nodes, options)
        outputs = detections(nodes, boxes, scores, batch, classes, options)
    append_nodes(graph, nodes, known, outputs)


def _scores(graph: Graph, nodes: Nodes, options: PostprocessOptions) -> list[tuple[str, str]]:
    ports = graph.outputs
    if any(not shape_of(port.value) for port in ports):
        raise _misfit(options, "an output has no axis of classes")
    if options.kind == "softmax":
        return [
            (f"{port.name}/softmax", nodes("Softmax", f"output/{k}", axis=-1)) for k, port in enumerate(ports)
        ]
    if len(ports) != 1:
        raise _misfit(options, f"there are {len(ports)} outputs, and it takes one")
    size = shape_of(ports[0].value)[-1]
    values, indices = nodes.several(
        "TopK", 2, "output/0", ints(min(options.k, size)), axis=-1, largest=1, sorted=1
    )
    return [("values", values), ("indices", indices)]


def _yolo(graph: Graph, nodes: Nodes, options: PostprocessOptions) -> tuple[str, str, int, int]:
    height, width = _input_size(graph, options)
    ports = graph.outputs
    shapes = [shape_of(port.value) for port in ports]
    given = [(f"output/{k}", shape) for k, shape in enumerate(shapes)]
    if options.family == "yolox" and len(ports) == 1 and len(shapes[0]) == 3:
        given = _rows_to_heads(nodes, shapes[0], height, width, options)
    for name, shape in given:
        if len(shape) != 4:
            where = ports[int(name.split("/")[1])].name
            raise _misfit(
                options, f"output '{where}' has rank {len(shape)}, not N x channels x rows x columns"
            )
    # The finest grid first, as strides and anchors are given.
    given.sort(key=lambda head_output: -head_output[1][2] * head_output[1][3])
    heads = _heads(given, (height, width), options)
    least = 4 * options.bins if options.family == "yolov8" else 5
    classes = {head.shape[1] // max(1, len(head.anchors)) - least for head in heads}
    if len(classes) != 1 or min(classes) < 1 or len({head.shape[0] for head in heads}) != 1:
        raise _misfit(
            options, f"heads of {', '.join(str(head.shape[1]) for head in heads)} channels do not fit it"
        )
    decode = with_sides if least != 5 else with_anchors
    decoded = [decode(nodes, head, options) for head in heads]
    boxes, scores = (
        nodes("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        for parts in zip(*decoded, strict=True)
    )
    return boxes, scores, heads[0].shape[0], classes.pop()


def _heads(
    given: list[tuple[str, tuple[int, ...]]], size: tuple[int, int], options: PostprocessOptions
) -> list[Head]:
    strides = options.strides or tuple(size[0] / shape[2] for _, shape in given)
    lists = {"strides": strides, "anchors": options.anchors, "scale_xy": options.scale_xy}
    for name, values in lists.items():
        if values and len(values) != len(given):
            raise _misfit(
                options, f"the network has {len(given)} heads, and {name} has {len(values)} entries"
            )
    heads = []
    for k, (name, shape) in enumerate(given):
        own = options.anchors[k] if options.anchors else ()
        if own and shape[1] % len(own):
            raise _misfit(options, f"{shape[1]} channels are not divided evenly among {len(own)} anchors")
        scale = options.scale_xy[k] if options.scale_xy else 1.0
        heads.append(Head(name, shape, strides[k], own, scale))
    return heads


def _rows_to_heads(
    nodes: Nodes, shape: tuple[int, ...], height: int, width: int, options: PostprocessOptions
) -> list[tuple[str, tuple[int, ...]]]:
    """YOLOX as it is exported: the cells of all heads as rows."""
    strides = options.strides or (8.0, 16.0, 32.0)
    grids = [(int(height // stride), int(width // stride)) for stride in strides]
    batch, rows, channels = shape
    if sum(a * b for a, b in grids) != rows:
        raise _misfit(options, f"strides of {'/'.join(f'{s:g}' for s in strides)} do not give {rows} rows")
    parts = nodes.several("Split", len(grids), "output/0", ints(*(a * b for a, b in grids)), axis=1)
    heads: list[tuple[str, tuple[int, ...]]] = []
    for part, (a, b) in zip(parts, grids, strict=True):
        turned = nodes("Transpose", part, perm=[0, 2, 1])
        heads.append((nodes("Reshape", turned, ints(batch, channels, a, b)), (batch, channels, a, b)))
    return heads


def _ssd(graph: Graph, nodes: Nodes, options: PostprocessOptions) -> tuple[str, str, int, int]:
    from npuc.tensors import TensorFile

    constants = {
        k: array for k, port in enumerate(graph.outputs) if (array := graph.constant(port.value)) is not None
    }
    given = {k: shape_of(port.value) for k, port in enumerate(graph.outputs) if k not in constants}
    shapes = list(given.values())
    if len(shapes) != 2 or any(len(shape) != 3 for shape in shapes) or shapes[0][:2] != shapes[1][:2]:
        raise _misfit(options, "it takes two outputs, N x priors x 4 and N x priors x classes")
    fours = [k for k, shape in given.items() if shape[2] == 4]
    if not fours:
        raise _misfit(options, "no output has rows of four offsets")
    # If there are four classes as well, the name has to tell.
    names = {k: graph.outputs[k].name for k in fours}
    offsets = next((k for k in fours if "box" in names[k] or "loc" in names[k]), fours[0])
    confidences = next(k for k in given if k != offsets)
    batch, count, classes = given[confidences]
    if options.priors:
        priors = np.asarray(next(iter(TensorFile(Path(options.priors)).values()), np.zeros(0)), np.float32)
    else:
        priors = _own_priors(constants.values(), count, options)
    if priors.shape != (count, 4) or not np.isfinite(priors).all():
        origin = options.priors or "its own output"
        raise _misfit(options, f"the network has {count} priors, and {origin} has an array of {priors.shape}")
    if options.background >= classes:
        raise _misfit(options, f"class {options.background} cannot be the background of {classes} classes")
    size = _input_size(graph, options)
    boxes, scores = with_priors(
        nodes, f"output/{offsets}", f"output/{confidences}", classes, priors, size, options
    )
    return boxes, scores, batch, classes - (options.background >= 0)


def _own_priors(constants: Iterable[Array], count: int, options: PostprocessOptions) -> Array:
    """The prior boxes that a network gives as a constant output: count x 4 (center x, center y, width, height), or Caffe's
    1 x 2 x 4 count (corners, then variances)."""
    for array in constants:
        values = np.asarray(array, np.float32)
        if values.size == 4 * count and values.shape[-1] == 4:
            return values.reshape(count, 4)
        if values.shape == (1, 2, 4 * count):
            low, high = np.split(values[0, 0].reshape(count, 4), 2, axis=1)
            return np.concatenate([(low + high) / 2, high - low], axis=1)
    raise _misfit(
        options,
        "the prior boxes are not among its outputs",
        "Name the tensor that has them in --outputs, or give priors=FILE.npy (npuc.runtime.postprocess.ssd_priors)",
    )


def _input_size(graph: Graph, options: PostprocessOptions) -> tuple[int, int]:
    """Height and width of the image that the network takes."""
    images: list[Port] = [port for port in graph.inputs if len(shape_of(port.value)) == 4]
    if len(images) != 1:
        raise _misfit(options, f"the network has {len(images)} inputs of rank 4, and it takes one image")
    _, a, b, c = shape_of(images[0].value)
    layout = (images[0].preprocess or {}).get("layout") or (
        "nhwc" if c in (1, 3, 4) and a not in (1, 3, 4) else "nchw"
    )
    return (a, b) if layout == "nhwc" else (b, c)


def _misfit(options: PostprocessOptions, why: str, fix: str = "") -> UsageError:
    return UsageError(
        f"--add-postprocess {options.kind} does not fit the network: {why}",
        fix=fix
        or "Cut the network at the outputs of its last layers (--outputs), or see docs/postprocess.md",
    )
