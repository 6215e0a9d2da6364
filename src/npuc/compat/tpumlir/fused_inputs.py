"""Preprocessing fused at deployment: the program takes raw pixels, or the bytes of a camera, and normalizes them itself.

`--customization_format` says what is given: `RGB_PACKED` is height × width × channels, `RGB_PLANAR` channels first; images in
YUV are converted, and have the size of the network's own. `RGGB_RAW` and the other mosaics are 12-bit pixels of a sensor, which
become the four channels of an input as they are, 0 to 4095: what TPU-MLIR 1.30.2 compiles for the BM1684X computes that, too.
"""

from __future__ import annotations

from npuc.calib.table import CalibrationTable, Entry
from npuc.errors import UsageError
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.transform import CANONICAL
from npuc.transform.unpack_mosaic import MOSAIC_LARGEST

PIXELS = {
    "RGB_PLANAR": ("rgb", "nchw"),
    "RGB_PACKED": ("rgb", "nhwc"),
    "BGR_PLANAR": ("bgr", "nchw"),
    "BGR_PACKED": ("bgr", "nhwc"),
    "GRAYSCALE": ("gray", "nchw"),
    "RGBA_PLANAR": ("rgba", "nchw"),
}
"""Formats of pixels: their channels, and the order of axes."""
YUV = {"YUV420_PLANAR": "i420", "YUV_NV12": "nv12", "YUV_NV21": "nv21"}
"""Formats of cameras, and npuc's names of them."""
MOSAICS = {"GBRG_RAW": "gbrg", "GRBG_RAW": "grbg", "BGGR_RAW": "bggr", "RGGB_RAW": "rggb"}
"""Formats of sensors, and npuc's names of them."""
_LARGEST_PIXEL = 255.0
_LARGEST_OF_SENSOR = 4095.0


def with_fused_inputs(graph: Graph, name: str | None) -> Graph:
    """The network with the preprocessing of its image inputs inside; `name` is a format, or None for that of the network."""
    if name in MOSAICS:
        return run_pipeline(graph.copy(), f"unpack-mosaic{{order={MOSAICS[name]}}},{CANONICAL}")
    if not any(port.preprocess for port in graph.inputs):
        raise UsageError(
            "--fuse_preprocess has nothing to fuse: no input has preprocessing",
            fix="State --mean, --scale and --pixel_format to model_transform.py",
        )
    options = ""
    if name in PIXELS:
        pixel_format, layout = PIXELS[name]
        swapped = pixel_format in ("rgb", "bgr")
        options = f"{{{f'pixel_format={pixel_format} ' if swapped else ''}layout={layout}}}"
        _check_channels(graph, name, pixel_format)
    elif name is not None:
        graph = _from_camera(graph, YUV[name])
    return run_pipeline(graph, f"fuse-preprocess{options},{CANONICAL}")


def _check_channels(graph: Graph, name: str, pixel_format: str) -> None:
    for port in graph.inputs:
        own = (port.preprocess or {}).get("pixel_format", pixel_format)
        if {own, pixel_format} - {"rgb", "bgr"} and own != pixel_format:
            raise UsageError(
                f"--customization_format {name}: input '{port.name}' takes {own} pixels",
                fix="Give the format that model_transform.py was told, or its channels in another order",
            )


def _from_camera(graph: Graph, source_format: str) -> Graph:
    """The network with a source stated at its image inputs."""
    graph = graph.copy()
    ports = []
    for port in graph.inputs:
        preprocess = port.preprocess
        if preprocess:
            sides = shape_of(port.value)
            layout = preprocess.get("layout", "nchw")
            size = preprocess.get("resize") or (sides[2:] if layout == "nchw" else sides[1:3])
            preprocess = {**preprocess, "source_size": tuple(size), "source_format": source_format}
        ports.append((port.name, port.type, preprocess))
    graph.set_inputs(ports)
    return graph


def fused_ranges(graph: Graph, ranges: CalibrationTable) -> CalibrationTable:
    """The ranges of a network for the same with fused inputs: an input's is that of its normalized pixels now."""
    entries = dict(ranges.entries)
    for port in graph.inputs:
        normalized = entries.pop(port.name, None)
        inside = [name for name in graph.tensor_names() if name.startswith(f"{port.name}/")]
        is_mosaic = f"{port.name}/colours" in inside
        for name in (port.name, *inside):
            most = _LARGEST_PIXEL
            if is_mosaic and name != port.name:
                most = MOSAIC_LARGEST.get(name.rpartition("/")[2], _LARGEST_OF_SENSOR)
            entries[name] = Entry(name, most, 0.0, most, "pixels")
        name = f"{port.name}/{'colours' if is_mosaic else 'normalized'}"
        if normalized is not None and name in inside:
            entries[name] = Entry(
                name, normalized.threshold, normalized.min, normalized.max, normalized.method
            )
    return CalibrationTable(entries, ranges.comments, ranges.notes)
