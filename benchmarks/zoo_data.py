"""Samples for the networks of zoo.yaml: calibration and held-out ones, as .npz files with an array for each input.

Images are those of ../shared/data: ImageNet's calibration part to calibrate, its validation part and COCO's to compare. Where
that folder is absent, and for what there are no recordings of, samples are drawn with a seed of their own: sounds with
harmonics, gliding pitch, pauses and noise; text written on images; walks for series; token ids. Bytes are those of the
documentation of this repository. Calibration and comparison never share a sample.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from zlib import crc32

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from zoo_models import ROOT

from npuc.arrays import Array

_SHARED = ROOT.parent / "shared" / "data"
_FOLDERS = {
    "calibration": (_SHARED / "imagenet" / "calib",),
    "held_out": (_SHARED / "imagenet" / "val", _SHARED / "coco" / "images"),
}
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def samples(entry: dict[str, Any], part: str, count: int) -> list[list[Array]]:
    """Samples of a part (calibration or held_out): for each, the arrays of the inputs in their order."""
    drawn = []
    for index in range(count):
        rng = np.random.default_rng(crc32(f"{entry['name']} {part} {index}".encode()))
        drawn.append([_sample(spec, part, index, rng) for spec in entry["inputs"].values()])
    return drawn


def _sample(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    return _KINDS[spec.get("data", "image")](spec, part, index, rng)


def _image(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    return _prepared(_photograph(part, index, rng), spec)


def _text(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    """A photograph or a bright page with words on it."""
    image = _photograph(part, index, rng)
    if rng.random() < 0.5:
        image = Image.new("RGB", image.size, tuple(int(c) for c in rng.integers(200, 256, 3)))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        font = ImageFont.load_default(int(rng.integers(image.height // 16, image.height // 7)))
        place = rng.random() * 0.6 * image.width, rng.random() * 0.85 * image.height
        inner, outer = (tuple(int(c) for c in rng.integers(0, 256, 3)) for _ in range(2))
        draw.text(place, _word(rng), inner, font, stroke_width=2, stroke_fill=outer)
    return _prepared(image, spec)


def _line(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    """A line of text that fills its frame, on a part of a photograph."""
    height, width = _frame(spec)[0]
    if height > width:
        return _prepared(_drawn_line(part, index, rng, width, height).rotate(90, expand=True), spec)
    return _prepared(_drawn_line(part, index, rng, height, width), spec)


def _drawn_line(part: str, index: int, rng: np.random.Generator, height: int, width: int) -> Image.Image:
    image = _photograph(part, index, rng).crop((20, 20, 20 + width, 20 + height))
    if rng.random() < 0.5:
        image = Image.new("RGB", (width, height), tuple(int(c) for c in rng.integers(160, 256, 3)))
    font = ImageFont.load_default(int(height * (0.5 + 0.3 * rng.random())))
    colour = tuple(int(c) for c in rng.integers(0, 100, 3))
    ImageDraw.Draw(image).text((2 + rng.random() * 6, height * 0.08), _word(rng), colour, font)
    return image


def _word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(ascii_letters + digits), rng.integers(4, 12)))


def _photograph(part: str, index: int, rng: np.random.Generator) -> Image.Image:
    folders = [folder for folder in _FOLDERS[part] if folder.is_dir()]
    if not folders:
        coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8))
        return coarse.resize((320, 320), Image.Resampling.BICUBIC)
    paths = sorted(folders[index % len(folders)].iterdir())
    with Image.open(paths[(7 * index) % len(paths)]) as image:
        return image.convert("RGB").resize((320, 320), Image.Resampling.BILINEAR)


def _frame(spec: dict[str, Any]) -> tuple[tuple[int, int], bool]:
    """Height and width, and whether the channels come last."""
    shape = spec["shape"]
    last = shape[-1] in (1, 3)
    return ((shape[1], shape[2]) if last else (shape[2], shape[3])), last


def _prepared(image: Image.Image, spec: dict[str, Any]) -> Array:
    (height, width), last = _frame(spec)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32)
    norm = spec.get("norm", "imagenet")
    if norm == "imagenet":
        pixels = (pixels / 255 - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
    elif norm == "unit":
        pixels = pixels / 255
    elif norm == "signed":
        pixels = pixels / 127.5 - 1
    elif norm == "bgr_mean":
        pixels = pixels[..., ::-1] - np.array([104, 117, 123], np.float32)
    elif norm == "raw":
        pixels = pixels[..., ::-1]
    else:
        raise ValueError(f"no normalization '{norm}'")
    return np.ascontiguousarray((pixels if last else pixels.transpose(2, 0, 1))[None], np.float32)


def _video(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    """A frame that moves over a photograph."""
    _, _, frames, height, width = spec["shape"]
    whole = _photograph(part, index, rng)
    flat = {"shape": [1, 3, height, width]}
    moved = [_prepared(whole.crop((8 * k, 4 * k, 8 * k + 200, 4 * k + 200)), flat) for k in range(frames)]
    return np.ascontiguousarray(np.stack(moved, axis=2))


def _wave(length: int, rng: np.random.Generator, rate: int = 16000) -> Array:
    """Something like speech: a gliding pitch with harmonics under formants, syllables and pauses, and noise."""
    time = np.arange(length) / rate
    pitch = (
        90 + 160 * rng.random() + 40 * np.sin(2 * np.pi * (0.5 + 2 * rng.random()) * time + rng.random() * 6)
    )
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    formants = rng.uniform([300, 900, 2200], [800, 2000, 3200])
    wave = np.zeros(length)
    for harmonic in range(1, 24):
        frequency = harmonic * pitch.mean()
        wave += np.exp(-(((frequency - formants) / 250) ** 2)).sum() * np.sin(harmonic * phase) + np.sin(
            harmonic * phase
        ) * (0.1 / harmonic)
    syllables = np.clip(np.sin(2 * np.pi * (2 + 3 * rng.random()) * time + rng.random() * 6) + 0.4, 0, 1)
    wave = wave / (np.abs(wave).max() + 1e-9) * syllables
    wave += rng.normal(0, rng.uniform(0.002, 0.05), length)
    return (wave * rng.uniform(0.1, 0.6)).astype(np.float32)


def _audio(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    shape = spec["shape"]
    return _wave(max(shape), rng).reshape(shape)


def _mel_frames(frames: int, bands: int, rng: np.random.Generator) -> Array:
    """A logarithmic spectrogram in mel bands of 25 ms every 10 ms, with mean zero and deviation one: frames x bands."""
    wave = _wave(400 + 160 * (frames - 1), rng)
    pieces = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160] * np.hanning(400)
    power = np.abs(np.fft.rfft(pieces, 512)) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), bands + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(512, 1 / 16000)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    spectrum = np.log(power @ np.clip(np.minimum(rise, fall), 0, None).T + 1e-6)
    return ((spectrum - spectrum.mean()) / (spectrum.std() + 1e-6)).astype(np.float32)


def _mel(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    shape = spec["shape"]
    axes = [size for size in shape if size != 1]
    bands = min(axes)
    frames = _mel_frames(max(axes), bands, rng)
    return np.ascontiguousarray(frames.T if axes[0] == bands else frames).reshape(shape)


def _features(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    """Spectra as int8, as a microphone front end delivers them."""
    _, frames, bands = spec["shape"]
    frames_of_bands = _mel_frames(frames, bands, rng)
    return np.clip(np.rint(frames_of_bands * 40), -128, 127).astype(np.int8)[None]


def _tokens(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    return rng.integers(spec.get("lowest", 0), spec["vocabulary"], spec["shape"], np.int64)


def _bytes(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    """The first and the last bytes of pages and sources of this repository, the rest filled with 256."""
    paths = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "benchmarks").glob("*.py"))
    content = paths[(2 * index + (part == "held_out")) % len(paths)].read_bytes()
    half = spec["shape"][1] // 2
    ids = np.full(spec["shape"], 256, np.int32)
    begin, end = content[:half], content[-half:]
    ids[0, : len(begin)] = np.frombuffer(begin, np.uint8)
    ids[0, -len(end) :] = np.frombuffer(end, np.uint8)
    return ids


def _state(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    return (rng.normal(0, 0.3, spec["shape"]) * (index > 0)).astype(np.float32)


def _series(spec: dict[str, Any], part: str, index: int, rng: np.random.Generator) -> Array:
    return np.cumsum(rng.normal(0, 0.3, spec["shape"]), axis=1).astype(np.float32)


_KINDS = {
    "image": _image,
    "text": _text,
    "line": _line,
    "video": _video,
    "audio": _audio,
    "mel": _mel,
    "features": _features,
    "tokens": _tokens,
    "bytes": _bytes,
    "state": _state,
    "series": _series,
}


def write(folder: Path, names: list[str], drawn: list[list[Array]], types: list[Any]) -> None:
    """Write samples as .npz files, each array with the type that the network declares."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, arrays in enumerate(drawn):
        cast = {
            name: array.astype(kind) if array.dtype != kind else array
            for name, array, kind in zip(names, arrays, types, strict=True)
        }
        np.savez(folder / f"{index:03}.npz", **cast)
