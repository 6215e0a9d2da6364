"""How images become the inputs of a model, as a C source (settings.c of an application)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.images.preprocess import Preprocess
from npuc.ir import Graph
from npuc.program.model import CompiledModel

_PILLOW = ("nearest", "bilinear", "bicubic")


def settings_source(entries: Sequence[tuple[CompiledModel, Graph]]) -> str:
    """The preprocessing of every input of every entry; NULL for one that takes no image."""
    lines = [
        f"/* Preprocessing of the inputs of {comment(entries[0][0].name)}, as the model states it. */",
        '#include "image.h"',
        "",
    ]
    names: list[str] = []
    first = []
    for compiled, interface in entries:
        first.append(str(len(names)))
        for port in interface.inputs:
            tensor = compiled.tensor(port.name)
            shape = tensor.shape
            # Pixels become reals or bytes in C, neither integers of some scale nor the bytes of a camera.
            foreign = bool(tensor.scale) or bool((port.preprocess or {}).get("yuv"))
            if port.preprocess is None or len(shape) not in (3, 4) or foreign:
                names.append("NULL")
                continue
            lines += [
                f"/* {comment(port.name)} */",
                *_input_settings(len(names), Preprocess.from_dict(port.preprocess), shape),
                "",
            ]
            names.append(f"&input{len(names)}")
    lines += [f"const preprocess *const settings[] = {{{', '.join(names) or 'NULL'}}};"]
    lines += [f"const int settings_count = {len(names)};"]
    lines += [f"const int settings_first[] = {{{', '.join(first)}}};", ""]
    return "\n".join(lines)


def _input_settings(index: int, how: Preprocess, shape: tuple[int, ...]) -> list[str]:
    resize, crop = how.steps(shape)
    mean, scale = how.arithmetic()
    fields = {
        "resize_height": resize[0],
        "resize_width": resize[1],
        "crop_height": crop[0] if crop else 0,
        "crop_width": crop[1] if crop else 0,
        "keep_aspect_ratio": int(how.keep_aspect_ratio),
        "pad_value": how.pad_value,
        "pad_center": int(how.pad_type == "center"),
        "channels": how.channels,
        "blue_first": int(how.pixel_format == "bgr"),
        "channels_first": int(how.layout == "nchw"),
        "interpolation": _kernel(how.interpolation),
        "standardize": ("", "image", "channel").index(how.standardize),
        "mean": f"{{{', '.join(map(_float, mean))}}}",
        "scale": f"{{{', '.join(map(_float, scale))}}}",
    }
    inside = [f"    .{name} = {value}," for name, value in fields.items()]
    return [f"static const preprocess input{index} = {{", *inside, "};"]


def _kernel(interpolation: str) -> str:
    """A member of `npuc_image_kernel`.

    >>> _kernel("bilinear"), _kernel("opencv-linear")
    ('NPUC_PILLOW_BILINEAR', 'NPUC_OPENCV_LINEAR')
    """
    name = f"pillow-{interpolation}" if interpolation in _PILLOW else interpolation
    return f"NPUC_{name.replace('-', '_').upper()}"


def _float(value: float) -> str:
    """The float32 as a hexadecimal constant, which loses no bit."""
    single = float(np.float32(value))
    return f"{single.hex()}f /* {single:.9g} */"


def comment(text: str) -> str:
    """A name from a model file as it may stand in a comment."""
    kept = "".join(c if c.isascii() and c.isprintable() and c not in "*\\?" else "_" for c in text)
    return kept[:100]
