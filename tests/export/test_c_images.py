"""The preprocessing of exported applications, in C, has the bits of npuc's own."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from npuc.calib.compiled import interface_of
from npuc.deploy.c.settings import settings_source
from npuc.deploy.c.sources import template
from npuc.images.loading import load_image
from npuc.images.preprocess import Preprocess
from npuc.program.model import Tensor
from support.programs.c_applications import STRICT, compiled, surroundings

CASES: list[tuple[Preprocess, tuple[int, ...], str]] = [
    (Preprocess(), (1, 3, 20, 24), "f32"),
    (Preprocess(resize=(30, 26), interpolation="bicubic"), (1, 3, 20, 24), "f32"),
    (Preprocess(keep_aspect_ratio=True, pad_value=9, pixel_format="bgr"), (1, 3, 50, 24), "f32"),
    (Preprocess(keep_aspect_ratio=True, pad_type="corner", interpolation="nearest"), (3, 20, 61), "ui8"),
    (Preprocess(keep_aspect_ratio=True, resize=(40, 40), crop=(33, 31)), (1, 3, 33, 31), "ui8"),
    (Preprocess(pixel_format="gray", mean=(1.5,), scale=(1 / 3,), layout="nhwc"), (1, 12, 200, 1), "f32"),
    (Preprocess(pixel_format="rgba", scale=(0.1, 0.2, 0.3, 0.4), layout="nhwc"), (1, 64, 48, 4), "f32"),
    (
        Preprocess(mean=(123.675, 116.28, 103.53), scale=(0.0171247538316637, 0.0175070, 0.0174291)),
        (1, 3, 7, 5),
        "f32",
    ),
    (Preprocess(interpolation="nearest", pixel_format="bgr"), (1, 3, 13, 90), "ui8"),
    (Preprocess(interpolation="opencv-linear", keep_aspect_ratio=True), (1, 3, 40, 44), "ui8"),
    (Preprocess(interpolation="opencv-linear-exact", pixel_format="gray"), (1, 1, 9, 70), "ui8"),
    (Preprocess(interpolation="opencv-nearest-exact", resize=(30, 26)), (1, 3, 20, 24), "ui8"),
    (Preprocess(interpolation="opencv-nearest"), (1, 3, 13, 90), "ui8"),
    (Preprocess(standardize="image", pixel_format="bgr"), (1, 3, 13, 90), "f32"),
    (Preprocess(standardize="channel", pixel_format="bgr", layout="nhwc"), (1, 20, 24, 3), "f32"),
]
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include "image.h"
int main(int count, char **words)
{
    image one;
    const char *unread = count < 2 ? "no image" : image_read(words[1], &one);
    if (unread) return fprintf(stderr, "%s\n", unread), 2;
    for (int i = 0; i < settings_count; i++) {
        const int64_t elements = atoll(words[2 + 2 * i]);
        const int is_float = words[3 + 2 * i][0] == 'f';
        const npu_tensor tensor = {.dtype = is_float ? NPU_F32 : NPU_U8, .elements = elements};
        const size_t size = (size_t)elements * (is_float ? 4 : 1);
        void *data = malloc(size);
        const char *why = image_to_tensor(&one, settings[i], &tensor, data);
        if (why || fwrite(data, 1, size, stdout) != size) return fprintf(stderr, "%d: %s\n", i, why), 3;
        free(data);
    }
    image_free(&one);
    return 0;
}
"""


DECODERS = [
    name
    for name, header in (("jpeg", "jpeglib.h"), ("png", "png.h"))
    if Path("/usr/include", header).is_file()
]
"""The libraries that are installed with their headers."""


@pytest.fixture(scope="module")
def driver(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prepares an image in all ways."""
    folder = tmp_path_factory.mktemp("images")
    tensors = tuple(
        Tensor(f"*/x{index}\n", shape, tuple(range(len(shape))), kind, 0.0, 0, 2, 0, 0)
        for index, (_, shape, kind) in enumerate(CASES)
    )
    stated = {tensor.name: how.to_dict() for tensor, (how, _, _) in zip(tensors, CASES, strict=True)}
    model = replace(
        compiled(root / "examples/digits.onnx"),
        tensors=tensors,
        inputs=tuple(tensor.name for tensor in tensors),
        metadata={"preprocess": stated},
    )
    (folder / "settings.c").write_text(settings_source([(model, interface_of(model))]))
    (folder / "driver.c").write_text(DRIVER)
    for name in ("image.c", "image.h", "decode.c"):
        (folder / name).write_text(template(name))
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=off", "-O1"]
    command = ["gcc", "-std=c11", *STRICT.split(), *checks, f"-I{root / 'native/include'}"]
    command += [f"-DHAVE_{name.upper()}" for name in DECODERS]
    command += [
        "driver.c",
        "image.c",
        "decode.c",
        "settings.c",
        str(root / "native/src/image_resize.c"),
        *(f"-l{name}" for name in DECODERS),
        "-lm",
        "-o",
        "driver",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0, done.stderr
    return folder / "driver"


@pytest.mark.parametrize("size", [(37, 51), (20, 24), (5, 90), (200, 3), (1, 1)])
@pytest.mark.parametrize("suffix", ["ppm", "pgm", "bmp", "png", "jpg"])
def test_every_setting_has_npucs_bits(
    driver: Path, tmp_path: Path, size: tuple[int, int], suffix: str
) -> None:
    needed = {"png": "png", "jpg": "jpeg"}.get(suffix)
    if needed and needed not in DECODERS:
        pytest.skip(f"lib{needed} is not installed with its headers")
    shape = size if suffix == "pgm" else (*size, 3)
    pixels = np.random.default_rng(size).integers(0, 256, shape, np.uint8)
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(pixels).save(path)
    kinds = {"f32": np.float32, "ui8": np.uint8}
    expected = [load_image(path, how, wanted, kinds[kind]) for how, wanted, kind in CASES]
    arguments = [word for (_, wanted, kind) in CASES for word in (str(int(np.prod(wanted))), kind)]
    done = subprocess.run(
        [str(driver), str(path), *arguments], capture_output=True, env=surroundings(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    at = 0
    for (how, _, _), tensor in zip(CASES, expected, strict=True):
        got = np.frombuffer(done.stdout[at : at + tensor.nbytes], tensor.dtype).reshape(tensor.shape)
        np.testing.assert_array_equal(got, tensor, err_msg=str(how))
        at += tensor.nbytes
    assert at == len(done.stdout)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1"])
def test_other_kinds_of_png(driver: Path, tmp_path: Path, mode: str) -> None:
    if "png" not in DECODERS:
        pytest.skip("libpng is not installed with its headers")
    pixels = np.random.default_rng(3).integers(0, 256, (21, 17, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / "x.png")
    how, wanted, _ = next(case for case in CASES if case[2] == "ui8")
    arguments = [word for (_, wanted, kind) in CASES for word in (str(int(np.prod(wanted))), kind)]
    done = subprocess.run(
        [str(driver), str(tmp_path / "x.png"), *arguments], capture_output=True, env=surroundings()
    )
    assert done.returncode == 0, done.stderr
    assert load_image(tmp_path / "x.png", how, wanted, np.uint8).tobytes() in done.stdout


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_what_is_missing_or_damaged_is_said(driver: Path, root: Path, tmp_path: Path, kind: str) -> None:
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / f"x.{kind}")
    whole = (tmp_path / f"x.{kind}").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 3])
    command = [
        "gcc",
        "-std=c11",
        f"-I{root / 'native/include'}",
        "driver.c",
        "image.c",
        "decode.c",
        "settings.c",
    ]
    command += [str(root / "native/src/image_resize.c"), "-lm", "-o", str(tmp_path / "without")]
    subprocess.run(command, cwd=driver.parent, check=True, env=surroundings())
    arguments = [word for (_, wanted, kind) in CASES for word in (str(int(np.prod(wanted))), kind)]
    calls = [(tmp_path / "without", f"x.{kind}", f"built without lib{kind}")]
    calls += [(driver, "half", f"the {kind.upper()} file is damaged")] * (kind in DECODERS)
    for program, file, words in calls:
        done = subprocess.run(
            [program, tmp_path / file, *arguments], capture_output=True, text=True, env=surroundings()
        )
        assert done.returncode and words in done.stderr, done.stderr
