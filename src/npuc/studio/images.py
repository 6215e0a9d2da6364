"""One image through several models: what each is given, and what it says: the best classes, or boxes in the image.

An image becomes an input as in `npuc eval`: by what was chosen here, by what the model says, by what another of the models says
about an input of that size, or, where nobody says anything, as plain pixels.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from npuc.arrays import Array
from npuc.calib.recipe import load_recipe
from npuc.compare.figures import sqnr
from npuc.datasets.geometry import ImageView
from npuc.datasets.sample import LoadedSample
from npuc.errors import UsageError
from npuc.evaluate.decoding import Decoder, inside
from npuc.evaluate.subject import Feeding, ModelFile, Subject, open_subject, settle_preprocessing
from npuc.images.loading import decode, image_size
from npuc.images.preprocess import Preprocess
from npuc.ir import shape_of
from npuc.runtime.postprocess import softmax, top_k
from npuc.studio.maps import plain

MOST_MODELS = 4
BEST = 5
_LEAST_SCORE = 0.05
"""Boxes that are sent to the page, which hides those below a threshold that can be moved."""
_MOST_BOXES = 100
_WIDEST = 960
_WIDEST_INPUT = 320
FIELDS = ("resize", "keep_aspect_ratio", "pad_value", "pad_type", "crop", "mean", "scale", "pixel_format",
          "interpolation", "standardize")  # fmt: skip
"""Of `Preprocess`: what the page may choose."""
_FLAGS = {"resize": "--resize-dims"}
"""Command line options that are not called like their field."""


@dataclass(frozen=True)
class ImageRun:
    """An image, the models that see it, and how it gets into them."""

    image: Path
    models: Mapping[str, Path]
    """By the name that the page knows; the first is what the others are held against."""
    prepare: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Preprocess`; empty is what the models say."""
    recipe: Path | None = None
    """In place of it: a recipe, as `--preprocess` takes it."""
    decode: str = ""
    """How outputs become boxes, as `npuc eval --postprocess` takes it; empty is boxes from inside the network, or classes."""
    labels: tuple[str, ...] = ()


def run_image(request: ImageRun) -> dict[str, Any]:
    """The image, and of each model its input and its answer."""
    if not 1 <= len(request.models) <= MOST_MODELS:
        raise UsageError(f"an image is shown to 1 to {MOST_MODELS} models at once")
    if unknown := [name for name in request.prepare if name not in FIELDS]:
        raise UsageError(f"there is no preprocessing option '{str(unknown[0])[:40]}'")
    subjects = {name: open_subject(ModelFile(path)) for name, path in request.models.items()}
    if request.recipe is not None:
        recipe = load_recipe(request.recipe)
        for subject in subjects.values():
            subject.prepare = recipe
    notes = settle_preprocessing(list(subjects.values()), request.prepare)
    height, width = image_size(request.image)
    decoder = Decoder.parse(request.decode) if request.decode else None
    answers: list[dict[str, Any]] = []
    reference: dict[str, Array] | None = None
    for name, subject in subjects.items():
        feeding = Feeding(subject)
        loaded = LoadedSample(path=request.image)
        inputs = feeding.inputs(loaded, request.image.name)
        (outputs,) = subject.engine().run_samples([inputs])
        view = feeding.view(loaded)
        answer = {"model": name, "form": subject.kind, "input": _prepared(subject, feeding, inputs)}
        answer |= _said(outputs, view, decoder, request, name)
        if reference is not None:
            answer |= _worst_output(reference, outputs)
        reference = reference or outputs
        answers.append(answer)
    pixels = decode(request.image, "rgb")
    return {
        "width": width,
        "height": height,
        "picture": _data_url(pixels, _WIDEST, "JPEG"),
        "notes": _together(notes, request.models),
        "models": answers,
    }


def _together(notes: Sequence[str], models: Mapping[str, Path]) -> list[str]:
    """Notes with the names that the page knows; what is true of several models is said once."""
    about: dict[str, list[str]] = {}
    for note in notes:
        name = next((name for name, path in models.items() if note.startswith(f"{path}: ")), "")
        words = note.removeprefix(f"{models[name]}: ") if name else note
        for other, path in models.items():
            words = words.replace(str(path), other)
        about.setdefault(words, []).append(name)
    return [f"{', '.join(filter(None, names))}: {words}" for words, names in about.items()]


def read_labels(path: Path) -> tuple[str, ...]:
    """Names of classes, one a line."""
    if path.stat().st_size > 1 << 20:
        raise UsageError(f"'{path.name}' is larger than names of classes are")
    lines = path.read_text("utf-8", "replace").splitlines()
    return tuple("".join(c for c in line if c.isprintable()).strip()[:80] for line in lines)


def _said(
    outputs: Mapping[str, Array],
    view: ImageView | None,
    decoder: Decoder | None,
    request: ImageRun,
    model: str,
) -> dict[str, Any]:
    """What a model's outputs mean: boxes, or the best classes; else their shapes, and what to choose."""
    if view is not None:
        detections = decoder.detect(outputs, view, model) if decoder else inside(outputs, view)
        if detections is not None:
            kept = np.flatnonzero(detections.scores >= _LEAST_SCORE)[:_MOST_BOXES]
            return {
                "boxes": [
                    {
                        "box": [round(float(side), 1) for side in detections.boxes[k]],
                        "score": round(float(detections.scores[k]), 4),
                        "class": int(detections.classes[k]),
                        "label": _label(request.labels, int(detections.classes[k])),
                    }
                    for k in kept
                ]
            }
    elif decoder is not None:
        raise UsageError(
            "a recipe does not tell where in the image a box of the input is",
            fix="Choose the preprocessing by its fields",
        )
    shapes = {name: "x".join(map(str, np.shape(value))) for name, value in outputs.items()}
    vectors = [np.asarray(value).reshape(-1) for value in outputs.values()]
    if len(vectors) == 1 and vectors[0].size == max(np.shape(next(iter(outputs.values()))), default=1) > 1:
        return {"best": _best(vectors[0], request.labels), "classes": int(vectors[0].size)}
    return {"shapes": shapes}


def _best(values: Array, labels: Sequence[str]) -> list[dict[str, Any]]:
    scores = np.asarray(values, np.float64)
    # An output that sums to 1 is one of probabilities already.
    is_probability = bool(scores.min() >= 0 and abs(scores.sum() - 1) < 0.02)
    shares = scores if is_probability else softmax(scores)
    indices, _ = top_k(scores, BEST)
    return [
        {
            "class": int(k),
            "label": _label(labels, int(k)),
            "score": plain(round(float(shares[k]), 5)),
            "value": plain(float(f"{scores[k]:.5g}")),
        }
        for k in indices
    ]


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if number < len(labels) else ""


def _worst_output(reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Any]:
    """The output that is furthest from the reference's, with its decibels; nothing if they have none in common."""
    decibels: dict[str, float] = {}
    for name, value in outputs.items():
        if name in reference and np.shape(reference[name]) == np.shape(value):
            ours, exact = (np.asarray(array, np.float64) for array in (value, reference[name]))
            squares = np.array([np.square(exact).sum(), np.square(ours - exact).sum()])
            decibels[name] = float(sqnr(squares))
    if not decibels:
        return {}
    worst = min(decibels, key=lambda name: decibels[name])
    return {"worst": worst, "sqnr": plain(round(decibels[worst], 2))}


def _prepared(subject: Subject, feeding: Feeding, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """What the model is given: as a picture, and as steps with the options that ask for them."""
    ((name, tensor),) = inputs.items()
    port = feeding.ports[name]
    shape, kind = shape_of(port.value), np.asarray(tensor).dtype.name
    form = f"{'x'.join(map(str, shape))}, {kind}"
    if subject.prepare is not None:
        return {
            "name": name,
            "steps": ["by the recipe", form],
            "flags": "",
            "picture": _tensor_url(tensor, None),
        }
    preprocess = feeding.preprocessing(port)
    return {
        "name": name,
        "steps": [*_steps(preprocess, shape), form],
        "flags": " ".join(_flags(preprocess)),
        "picture": _tensor_url(tensor, preprocess),
    }


def _steps(preprocess: Preprocess, shape: Sequence[int]) -> list[str]:
    """Preprocessing in words, in the order in which it is done."""
    resize, crop = preprocess.steps(shape)
    if not preprocess.keep_aspect_ratio:
        words = f"stretched to {resize[0]} x {resize[1]}"
    elif crop is None:
        place = "around it" if preprocess.pad_type == "center" else "right and below"
        words = f"fitted into {resize[0]} x {resize[1]}, the rest {place} filled with {preprocess.pad_value}"
    else:
        words = f"scaled to cover {resize[0]} x {resize[1]}"
    steps = [f"{words} ({preprocess.interpolation})"]
    if crop is not None:
        steps.append(f"the middle {crop[0]} x {crop[1]} taken")
    steps.append(f"channels {preprocess.pixel_format}, {preprocess.layout}")
    if preprocess.standardize:
        steps.append(f"less its own mean, by its own deviation, of each {preprocess.standardize}")
    elif preprocess.has_arithmetic:
        mean, scale = (", ".join(f"{v:.5g}" for v in values) for values in preprocess.arithmetic())
        steps.append(f"(pixel − mean) × scale: mean {mean}; scale {scale}")
    else:
        steps.append("pixels from 0 to 255")
    return steps


def _flags(preprocess: Preprocess) -> list[str]:
    """The options of `npuc compile`, `run` and `eval` that ask for the same.

    >>> _flags(Preprocess(mean=(127.5,), pixel_format="bgr", keep_aspect_ratio=True))
    ['--keep-aspect-ratio', '--mean 127.5', '--pixel-format bgr']
    """
    plain_one, flags = Preprocess(), []
    for name in FIELDS:
        value = getattr(preprocess, name)
        if value == getattr(plain_one, name):
            continue
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, bool):
            flags.append(flag)
        else:
            text = ",".join(f"{v:.8g}" for v in value) if isinstance(value, tuple) else str(value)
            flags.append(f"{flag} {text}")
    return flags


def _tensor_url(tensor: Array, preprocess: Preprocess | None) -> str:
    """The input as a picture: its pixels before mean and scale where these are known, else stretched over its own range."""
    array = np.asarray(tensor, np.float64)
    array = array[0] if array.ndim == 4 else array
    if preprocess is not None and preprocess.yuv:
        return ""
    first = preprocess.layout == "nchw" if preprocess is not None else array.shape[0] in (1, 3, 4)
    image = array.transpose(1, 2, 0) if first else array
    if preprocess is not None and not preprocess.standardize:
        if np.asarray(tensor).dtype.kind == "f":
            mean, scale = (np.asarray(values) for values in preprocess.arithmetic())
            image = image / scale + mean
        elif np.asarray(tensor).dtype == np.int8:
            image = image + 128
    else:
        low, high = float(image.min()), float(image.max())
        image = (image - low) * (255 / (high - low) if high > low else 0)
    pixels = np.clip(np.rint(image), 0, 255).astype(np.uint8)[:, :, :3]
    if preprocess is not None and preprocess.pixel_format == "bgr":
        pixels = pixels[:, :, ::-1]
    return _data_url(pixels, _WIDEST_INPUT, "PNG")


def _data_url(pixels: Array, widest: int, form: str) -> str:
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    image.thumbnail((widest, widest))
    buffer = io.BytesIO()
    image.save(buffer, form, **({"quality": 85} if form == "JPEG" else {"optimize": False}))
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
