"""`qubee.calibration`: images become the arrays that a model is calibrated with.

    make_calib("resnet50.yaml", "images", "calibration", "resnet50", max_size=100)

writes `calibration/resnet50/*.npy` and the list of them, `calibration/resnet50.txt`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.coco import balanced_files
from npuc.calib.recipe import load_recipe, parse_recipe
from npuc.calib.sources import choose
from npuc.calib.user_function import wrapped
from npuc.compat.qubee.notices import note, wrong
from npuc.errors import CalibrationDataError, FileMissingError, InputDataError, MissingExtraError, UsageError
from npuc.files import filled_folder, write_atomically
from npuc.images.loading import is_gray, is_image
from npuc.words import counted

__all__ = ["make_calib", "make_calib_man"]

_FILE_FORMAT = "%012d.jpg"
"""The name of the image of a number, as COCO has it."""


def make_calib(
    args_pre: Mapping[str, Any] | Path | str,
    data_dir: Path | str,
    save_dir: Path | str,
    save_name: str | None = None,
    anno_json: Path | str | None = None,
    file_format: str = _FILE_FORMAT,
    max_size: int = -1,
    remove_npy: bool = False,
    seed: int = 2023,
    save_calib_msg: bool = False,
    msg_path: Path | str | None = None,
) -> str:
    """Prepare images by the steps of a YAML file, or of a dictionary like it; the path of the list of arrays."""
    if isinstance(args_pre, Mapping):
        recipe = parse_recipe(args_pre)
    elif isinstance(args_pre, str | Path):
        recipe = load_recipe(args_pre)
    else:
        raise wrong("args_pre", args_pre, "the path of a YAML file, or a dictionary")
    return _prepared(
        recipe, data_dir, save_dir, save_name, anno_json, file_format, max_size, remove_npy, seed,
        save_calib_msg, msg_path,
    )  # fmt: skip


def make_calib_man(
    pre_ftn: Callable[[str], Any],
    data_dir: Path | str,
    save_dir: Path | str,
    save_name: str | None = None,
    anno_json: Path | str | None = None,
    file_format: str = _FILE_FORMAT,
    max_size: int = -1,
    remove_npy: bool = False,
    seed: int = 2023,
    save_calib_msg: bool = False,
    msg_path: Path | str | None = None,
) -> str:
    """Prepare images by a function from the path of one to an array; the path of the list of arrays."""
    if not callable(pre_ftn):
        raise wrong("pre_ftn", pre_ftn, "a function from a path to an array")
    prepare = wrapped(pre_ftn, getattr(pre_ftn, "__name__", "pre_ftn"))
    return _prepared(
        prepare, data_dir, save_dir, save_name, anno_json, file_format, max_size, remove_npy,
        seed, save_calib_msg, msg_path,
    )  # fmt: skip


def _prepared(
    prepare: Callable[[Any], Any],
    data_dir: Any,
    save_dir: Any,
    save_name: Any,
    anno_json: Any,
    file_format: str,
    max_size: Any,
    remove_npy: bool,
    seed: int,
    save_calib_msg: bool,
    msg_path: Any,
) -> str:
    if type(anno_json) is int:  # scripts for earlier releases give the number in fifth place
        anno_json, max_size = None, anno_json
    for name, value in (("max_size", max_size), ("seed", seed)):
        if type(value) is not int:
            raise wrong(name, value, "a whole number")
    for name, value in (("data_dir", data_dir), ("save_dir", save_dir)):
        if not isinstance(value, str | Path):
            raise wrong(name, value, "the path of a folder")
    if save_name is not None and (not isinstance(save_name, str) or Path(save_name).name != save_name):
        raise wrong("save_name", save_name, "a plain name, such as resnet50")
    if msg_path is not None and not save_calib_msg:
        note("msg_path has no effect: save_calib_msg is False")
    if file_format != _FILE_FORMAT and anno_json is None:
        note("file_format has no effect: without anno_json, all images of data_dir are taken")
    pack = _packer() if save_calib_msg else None
    files = _images(Path(data_dir), anno_json, file_format, max_size if max_size >= 0 else None, seed)
    title = save_name or Path(data_dir).absolute().name
    with filled_folder(Path(save_dir) / title) as folder:
        return _filled(prepare, files, folder.absolute(), remove_npy, pack, msg_path, data_dir)


def _filled(
    prepare: Callable[[Any], Any],
    files: list[Path],
    folder: Path,
    remove_npy: bool,
    pack: Any,
    msg_path: Any,
    data_dir: Any,
) -> str:
    """Write the arrays of images into a folder, and the list beside it; the path of the list."""
    title = folder.name
    with TemporaryDirectory(dir=folder.parent, prefix=f".{title}-") as unfinished:
        names = _write_arrays(prepare, files, Path(unfinished))
        if remove_npy:
            for old in folder.glob("*.npy"):
                old.unlink()
        for name in names:
            os.replace(Path(unfinished) / name, folder / name)
    listing = folder.parent / f"{title}.txt"
    with write_atomically(listing) as out:
        out.write("".join(f"{folder / name}\n" for name in names).encode())
    if pack is not None:
        target = Path(msg_path) if msg_path is not None else folder.parent / f"{title}_{len(names)}.msgpack"
        with write_atomically(target) as out:
            out.write(pack(_packed(folder, names)))
    note(f"{data_dir} -> {folder}: {counted(len(names), 'array')}, listed in {listing}")
    return str(listing)


def _images(folder: Path, annotations: Any, file_format: str, count: int | None, seed: int) -> list[Path]:
    """The images of a folder, or a choice of them."""
    if not folder.is_dir():
        raise FileMissingError("data_dir is no folder", where=str(folder), fix="Give a folder of images")
    if count == 0:
        raise UsageError("max_size is 0: that is no data", fix="Give -1 for all images")
    if annotations is not None:
        return balanced_files(Path(annotations), folder, count, seed, file_format)
    files = sorted(path for path in folder.iterdir() if path.is_file() and is_image(path))
    if not files:
        raise CalibrationDataError("there are no images in data_dir", where=str(folder))
    return choose(files, count, seed)


def _write_arrays(prepare: Callable[[Any], Any], files: Sequence[Path], folder: Path) -> list[str]:
    """The array of each image in a file; their names."""
    names: list[str] = []
    shapes: dict[tuple[int, ...], Path] = {}
    gray: set[bool] = set()
    for number, path in enumerate(files):
        array = _number_array(prepare(path), path)
        shapes.setdefault(array.shape, path)
        if len(shapes) > 1:
            (first, one_file), (second, _) = shapes.items()
            raise InputDataError(
                f"becomes an array of {list(second)}, and {one_file.name} one of {list(first)}",
                where=str(path),
                fix="Resize to one size, and give gray and colour images the same channels",
            )
        gray.add(is_gray(path))
        names.append(f"{number:06d}_{path.stem}.npy")
        with open(folder / names[-1], "wb") as out:
            np.save(out, array, allow_pickle=False)
    if len(gray) > 1:
        note("there are gray and colour images: all were given the same channels")
    return names


def _number_array(prepared: Any, path: Path) -> Array:
    array = np.asarray(prepared)
    if array.dtype.kind not in "biuf" or not array.size:
        raise InputDataError(
            f"was made a {type(prepared).__name__}, and has to be an array of numbers", where=str(path)
        )
    return array


def _packer() -> Callable[[Any], bytes]:
    try:
        import msgpack  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingExtraError(
            "save_calib_msg needs MessagePack, which is not installed",
            fix="Install it with: pip install msgpack",
        ) from error
    pack: Callable[[Any], bytes] = msgpack.packb
    return pack


def _packed(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Arrays by name: their bytes, shape and type."""
    arrays = {Path(name).stem: np.load(folder / name, allow_pickle=False) for name in names}
    return {
        name: {"data": array.tobytes(), "shape": list(array.shape), "dtype": array.dtype.name}
        for name, array in arrays.items()
    }
