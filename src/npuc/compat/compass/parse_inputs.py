"""What a network takes at its inputs: `input_data_format`, `input_dtype` and `gamut_preprocess` of a cfg file.

The order of axes is an option of npuc's own import; types and colours change the network that was imported.
"""

from __future__ import annotations

import re
from typing import cast

from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.logger import say
from npuc.errors import PreprocessError
from npuc.ir import Graph, dtype_of, shape_of
from npuc.transform.camera_inputs import PLANAR, with_rgb_input, with_yuv_input
from npuc.transform.image_ops import BT709_FULL, TO_BT709_FULL, ColourMatrix
from npuc.transform.input_types import PLAIN_TYPES, with_input_types

KEYS = ("input_data_format", "input_dtype", "gamut_preprocess")
BESIDE_GAMUT = (
    "gamut_format",
    "gamut_bits",
    "gamut_conversion",
    "rgb_shape",
    "coefficient",
    "coefficient_dtype",
    "coefficient_shift",
)
"""Keys that say more of gamut_preprocess."""
_TYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "ui8",
    "int16": "i16",
    "uint16": "ui16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}
"""Element types by the words of input_dtype."""
_PLAIN = [word for word, kind in _TYPES.items() if kind in PLAIN_TYPES]
_GAMUT = ("YuvToRgb", "RgbToYuv")
_COEFFICIENTS = 15


def stated_layout(section: CfgSection, layout: str) -> str:
    """The order of axes that `input_data_format` asks of images, if it is not that of the model; empty otherwise."""
    stated = section.choice("input_data_format", ("NCHW", "NHWC")).lower()
    return "" if stated == layout else stated


def tell_layout(section: CfgSection, graph: Graph, layout: str) -> None:
    """Say which inputs of a network have another order of axes than the model's; an error if none has."""
    images = [port.name for port in graph.inputs if len(shape_of(port.value)) == 4]
    if not images:
        raise section.wrong("input_data_format", "is the order of axes of an image, and no input has rank 4")
    axes = " x ".join(layout.upper())
    say("I", f"{', '.join(images)}: images come as {axes}, and the network turns them", "Parser")


def with_stated_inputs(graph: Graph, section: CfgSection, layout: str) -> Graph:
    """The network with the types and the colours that a section asks of its inputs; `layout` is the order of their axes."""
    if "gamut_preprocess" in section.values:
        for key in ("preprocess_type", "input_dtype"):
            if key in section.values:
                raise section.wrong(
                    "gamut_preprocess", f"does not go with {key}: its input takes the bytes of images"
                )
        return _with_colours(graph, section, layout)
    return _with_types(graph, section) if "input_dtype" in section.values else graph


def _with_types(graph: Graph, section: CfgSection) -> Graph:
    words = section.names("input_dtype")
    if len(words) != len(graph.inputs):
        names = ", ".join(port.name for port in graph.inputs)
        raise section.wrong("input_dtype", f"has {len(words)} types for the inputs {names}")
    types = {}
    for port, word in zip(graph.inputs, words, strict=True):
        kind, own = _TYPES.get(word.lower()), dtype_of(port.type)
        if kind is None:
            raise section.wrong("input_dtype", f"has the type '{word}', which is none of {', '.join(_TYPES)}")
        if own.name == kind:
            continue
        if own.is_float and kind in PLAIN_TYPES:
            types[port.name] = kind
        elif own.is_float or _TYPES[word.lower()][0] not in "iu":
            raise section.wrong(
                "input_dtype",
                f"is not for the input '{port.name}': the model computes with {own.name}, which takes itself, or the integers "
                f"{', '.join(_PLAIN)}",
            )
        else:
            say("W", f"the input '{port.name}' takes {own.name}, which has the values of {word}", "Parser")
    return with_input_types(graph, types) if types else graph


def _with_colours(graph: Graph, section: CfgSection, layout: str) -> Graph:
    kind = section.choice("gamut_preprocess", _GAMUT)
    if len(graph.inputs) != 1:
        raise section.wrong("gamut_preprocess", f"is for one input, and the network has {len(graph.inputs)}")
    section.integer("gamut_bits", 8, 8, 8)
    yuv = section.choice("gamut_format", tuple(word.upper() for word in PLANAR), "I420").lower()
    name = graph.inputs[0].name
    try:
        if kind == "YuvToRgb":
            return with_yuv_input(graph, name, layout, yuv, _colours(section, BT709_FULL))
        if yuv != "i420":
            raise section.wrong("gamut_format", "is not made of red, green and blue: only I420 is")
        return with_rgb_input(graph, name, _rgb_size(section), _colours(section, TO_BT709_FULL))
    except PreprocessError as error:
        raise PreprocessError(
            f"gamut_preprocess = {kind}: {error.message}", where=error.where, fix=error.fix
        ) from error


def _rgb_size(section: CfgSection) -> tuple[int, int]:
    """Height and width of `rgb_shape`, which is N, height, width, 3."""
    sides = re.findall(r"\d+", section.required("rgb_shape"))
    if len(sides) != 4 or sides[3] != "3":
        raise section.wrong("rgb_shape", "is no shape such as [1,224,224,3]")
    return int(sides[1]), int(sides[2])


def _colours(section: CfgSection, usual: ColourMatrix) -> ColourMatrix:
    """BT709, or the numbers of `coefficient`: three that are subtracted, three that are added, and the nine of the matrix."""
    if section.choice("gamut_conversion", ("BT709", "SELF"), "BT709") == "BT709":
        for key in ("coefficient", "coefficient_dtype", "coefficient_shift"):
            if key in section.values:
                say("W", f"{key} has no effect without gamut_conversion = SELF", "Parser")
        return usual
    text = section.required("coefficient")
    try:
        numbers = [float(word) for word in text.strip("[] ").split(",")]
    except ValueError:
        raise section.wrong("coefficient", "is no list of numbers") from None
    if len(numbers) != _COEFFICIENTS or not all(abs(number) < 1e6 for number in numbers):
        raise section.wrong("coefficient", f"has {len(numbers)} numbers, not {_COEFFICIENTS}")
    factor = 2.0 ** -section.integer("coefficient_shift", 0, 0, 24)
    rows = [tuple(number * factor for number in numbers[at : at + 3]) for at in (6, 9, 12)]
    before, after, *matrix = cast(
        "list[tuple[float, float, float]]", [tuple(numbers[:3]), tuple(numbers[3:6]), *rows]
    )
    return ColourMatrix(tuple(matrix), before, after)
