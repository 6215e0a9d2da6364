"""`npz_tool.py`: look at, compare and convert the .npz files that the other commands leave."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.compare.page import ComparedLayer, comparison_page
from npuc.compare.tensors import Difference, Tolerance, compare_sets
from npuc.compat.arguments import VendorParser, comma_list
from npuc.errors import FileFormatError, UnknownTensorError, UsageError
from npuc.files import writable, write_atomically
from npuc.tensors import TensorFile, write_npz, write_raw
from npuc.words import counted


def main(arguments: list[str]) -> int:
    """Run the command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: npz_tool.py FUNCTION ...\nfunctions: {', '.join(_FUNCTIONS)}")
        return 0 if arguments else 2
    name, *rest = arguments
    function = _FUNCTIONS.get(name)
    if function is None:
        near = get_close_matches(name, _FUNCTIONS, 1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(
            f"npz_tool.py has no function '{name}'", fix=f"{hint}There are: {', '.join(_FUNCTIONS)}"
        )
    return function(rest)


def _parser(function: str, description: str, *positionals: str) -> VendorParser:
    parser = VendorParser(f"npz_tool.py {function}", description)
    for name in positionals:
        parser.add(name)
    return parser


def _tensor(tensors: TensorFile, name: str) -> Array:
    if name not in tensors:
        near = ", ".join(get_close_matches(name, tensors, 3) or list(tensors)[:5])
        raise UnknownTensorError(f"has no tensor '{name}'", where=str(tensors.path), fix=f"It has {near}")
    return tensors[name]


def dump(arguments: Sequence[str]) -> int:
    """`dump FILE [NAME [K]]`: the tensors of a file, or the values of one; K > 0 shows the K largest, 0 all."""
    parser = _parser("dump", "List the tensors of a file, or print one.", "file")
    parser.add("name", nargs="?")
    parser.add("k", nargs="?", type=int, default=-1)
    options = parser.parse(arguments)
    tensors = TensorFile(options.file)
    if options.name is None:
        for name in tensors:
            header = tensors.header(name)
            print(f"{name} {list(header.shape)} {header.dtype}")
        return 0
    values = _tensor(tensors, options.name)
    print(f"tensor:{options.name}\nshape:{values.shape}\ndtype:{values.dtype}")
    if options.k > 0:
        flat = values.reshape(-1)
        for index in np.argsort(-flat, kind="stable")[: options.k]:
            print(int(index), flat[index])
        return 0
    whole = values.size + 1 if options.k == 0 else 1000
    print(np.array2string(values, threshold=whole, precision=6, suppress_small=True))
    if values.size and values.dtype.kind in "fiu":
        print(f"mean:{values.mean():.6g} max:{values.max():.6g} min:{values.min():.6g}")
    return 0


def compare(arguments: Sequence[str]) -> int:
    """`compare A B`: the figures of each tensor that both files have; 0 if all are within the tolerance."""
    parser = _parser("compare", "Compare the tensors of two files by name.", "target_file", "ref_file")
    parser.add("--tolerance", default="0.99,0.99", help="least cosine and euclid similarity, then SQNR in dB")
    parser.add("--excepts", "--except", type=comma_list, default=[], help="tensors to leave out")
    parser.add("--verbose", "-v", action="count", default=0)
    parser.add("--save", help="a .csv file for the figures")
    parser.add("--order", help="a text file of tensor names, in the order in which to print them")
    parser.add("--full-array", action="store_true", help="print both tensors whole where they differ")
    parser.add("--stats_int8_tensor", action="store_true", help="also the share of saturated values")
    parser.add_ignored("--op_info", "files of this layer hold real values, so nothing has to be dequantized")
    parser.add_ignored("--dequant", "files of this layer hold real values", action="store_true")
    parser.add_ignored("--int8_tensor_close", "integers are compared by the same figures")
    parser.add(
        "--per_axis_compare",
        type=int,
        default=-1,
        help="judge each tensor by its worst part along the axes up to this one, such as 1 for channels; -1 takes it whole",
    )
    options = parser.parse(arguments)
    similarity, least_sqnr = _tolerance(options.tolerance)
    ours, reference = TensorFile(options.target_file), TensorFile(options.ref_file)
    if options.save is not None:
        writable(options.save)
    axis = options.per_axis_compare if options.per_axis_compare >= 0 else None
    figures = _ordered(compare_sets(ours, reference, options.excepts, axis), options.order)
    failed = [entry for entry in figures if not _passes(entry, similarity, least_sqnr)]
    for entry in figures:
        _print_figures(entry, entry not in failed, options, ours, reference)
    if options.save is not None:
        _save(figures, failed, options.save)
        print(f"Results saved as {options.save}")
    print(
        f"{counted(len(figures), 'tensor')} compared: {len(figures) - len(failed)} passed, {len(failed)} failed"
    )
    print(f"Target    {options.target_file}\nReference {options.ref_file}")
    print(f"npz compare {'FAILED' if failed else 'PASSED'}.")
    return 1 if failed else 0


def _tolerance(text: str) -> tuple[Tolerance, float]:
    similarity, _, rest = text.partition(",")
    euclid, _, sqnr = rest.partition(",")
    parsed = Tolerance.parse(f"{similarity},{euclid}" if euclid else similarity)
    try:
        return parsed, float(sqnr) if sqnr else -np.inf
    except ValueError as error:
        raise UsageError(
            f"--tolerance '{text}' does not end with decibels", fix="Write it like 0.99,0.9,20"
        ) from error


def _ordered(figures: list[Difference], order: str | None) -> list[Difference]:
    if order is None:
        return figures
    try:
        names = Path(order).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"cannot be read: {error}", where=order) from error
    place = {name: index for index, name in enumerate(names)}
    return sorted(figures, key=lambda entry: place.get(entry.name, len(place)))


def _passes(entry: Difference, similarity: Tolerance, least_sqnr: float) -> bool:
    return entry.passes(similarity) and (entry.close or entry.sqnr >= least_sqnr)


def _print_figures(
    entry: Difference, passed: bool, options: Namespace, ours: TensorFile, reference: TensorFile
) -> None:
    verdict = "PASSED" if passed else "FAILED"
    equal = " EQUAL" if entry.sqnr == np.inf else ""
    print(f"[{entry.name:<32}] {verdict}{equal} {entry.note}".rstrip())
    if options.verbose or not passed:
        if entry.part:
            print(f"    the worst part on axis {len(entry.part) - 1} is {list(entry.part)}:")
        print(
            f"    {entry.shape} cosine {entry.cosine:.6f}, euclid {entry.euclid:.6f}, SQNR {entry.sqnr:.2f} dB, "
            f"largest error {entry.max_error:.6g}"
        )
    values = ours[entry.name]
    if options.stats_int8_tensor and values.dtype == np.int8:
        saturated = np.mean((values == 127) | (values == -128)) if values.size else 0.0
        print(f"    saturated {saturated:.2%}, zero {np.mean(values == 0) if values.size else 0.0:.2%}")
    if options.verbose > 1 or (options.full_array and not passed):
        threshold = values.size + 1 if options.full_array else 20
        for label, array in (("target", values), ("reference", reference[entry.name])):
            print(f"    {label} {np.array2string(array, threshold=threshold, precision=6)}")


def _save(figures: Sequence[Difference], failed: Sequence[Difference], path: str) -> None:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["name", "shape", "result", "cosine", "euclid", "sqnr", "max_error"])
    for entry in figures:
        verdict = "FAILED" if entry in failed else "PASSED"
        shape = "x".join(map(str, entry.shape))
        rows.writerow(
            [
                entry.name,
                shape,
                verdict,
                *(repr(float(v)) for v in (entry.cosine, entry.euclid, entry.sqnr, entry.max_error)),
            ]
        )
    with write_atomically(path) as out:
        out.write(text.getvalue().encode())


def to_dat(arguments: Sequence[str]) -> int:
    """`to_dat FILE OUT`: the bytes of all tensors, one behind the other, in the order of the file."""
    options = _parser("to_dat", "Write all tensors as raw bytes.", "file", "output").parse(arguments)
    tensors = TensorFile(options.file)
    with write_atomically(options.output) as out:
        for name in tensors:
            array = tensors[name]
            out.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    print(f"{counted(len(tensors), 'tensor')} written to {options.output}")
    return 0


def extract(arguments: Sequence[str]) -> int:
    """`extract FILE OUT a,b`: a file of some tensors."""
    options = _parser("extract", "Keep some tensors.", "file", "output", "names").parse(arguments)
    tensors = TensorFile(options.file)
    write_npz(options.output, {name: _tensor(tensors, name) for name in comma_list(options.names)})
    return 0


def rename(arguments: Sequence[str]) -> int:
    """`rename FILE OLD NEW [OUT]`: give a tensor another name, in the file itself unless another is given."""
    parser = _parser("rename", "Give a tensor another name.", "file", "old", "new")
    parser.add("output", nargs="?")
    options = parser.parse(arguments)
    tensors = TensorFile(options.file)
    _tensor(tensors, options.old)
    renamed = {options.new if name == options.old else name: tensors[name] for name in tensors}
    write_npz(options.output or options.file, renamed)
    return 0


def merge(arguments: Sequence[str]) -> int:
    """`merge A B ... OUT`: the tensors of several files in one; of two with the same name, the later one."""
    parser = VendorParser("npz_tool.py merge", "Put the tensors of several files into one.")
    parser.add("files", nargs="+", help="the files; the last one is written")
    options = parser.parse(arguments)
    if len(options.files) < 2:
        raise UsageError("npz_tool.py merge needs a file to read and one to write")
    merged = {name: tensors[name] for tensors in map(TensorFile, options.files[:-1]) for name in tensors}
    write_npz(options.files[-1], merged)
    return 0


_TYPES = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "int32": np.int32, "float32": np.float32}


def to_bin(arguments: Sequence[str]) -> int:
    """`to_bin FILE NAME OUT [TYPE]`: the bytes of one tensor, in another type if one is named."""
    parser = _parser("to_bin", "Write one tensor as raw bytes.", "file", "name", "output")
    parser.add("dtype", nargs="?", choices=[*_TYPES, "bf16"])
    options = parser.parse(arguments)
    values = _tensor(TensorFile(options.file), options.name)
    if options.dtype == "bf16":
        # The upper half of a float32, which is how the files of this layer hold bfloat16.
        values = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif options.dtype is not None:
        values = values.astype(_TYPES[options.dtype])
    write_raw(options.output, values)
    return 0


def to_npy(arguments: Sequence[str]) -> int:
    """`to_npy FILE NAME [OUT]`: one tensor as an .npy file."""
    parser = _parser("to_npy", "Write one tensor as an .npy file.", "file", "name")
    parser.add("output", nargs="?")
    options = parser.parse(arguments)
    values = _tensor(TensorFile(options.file), options.name)
    with write_atomically(options.output or f"{options.name}.npy") as out:
        np.save(out, values)
    return 0


def bf16_to_fp32(arguments: Sequence[str]) -> int:
    """`bf16_to_fp32 FILE OUT`: tensors of 16-bit words, which are bfloat16, as float32."""
    options = _parser("bf16_to_fp32", "Turn bfloat16 words into floats.", "file", "output").parse(arguments)
    tensors = TensorFile(options.file)
    write_npz(options.output, {name: _as_float(tensors[name]) for name in tensors})
    return 0


def _as_float(values: Array) -> Array:
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values


def int8_to_fp32(arguments: Sequence[str]) -> int:
    """`int8_to_fp32 FILE OUT NAME THRESHOLD`: an int8 tensor times threshold / 127."""
    parser = _parser("int8_to_fp32", "Turn integers into floats.", "file", "output", "name")
    parser.add("threshold", type=float)
    options = parser.parse(arguments)
    values = _tensor(TensorFile(options.file), options.name)
    write_npz(options.output, {options.name: values.astype(np.float32) * np.float32(options.threshold / 127)})
    return 0


def transpose(arguments: Sequence[str]) -> int:
    """`tranpose FILE FROM TO [OUT]`: tensors of rank 4 in another order of axes, such as from nhwc to nchw."""
    parser = _parser("tranpose", "Change the order of axes of tensors of rank 4.", "file", "source", "result")
    parser.add("output", nargs="?")
    options = parser.parse(arguments)
    source, result = options.source.lower(), options.result.lower()
    if {source, result} - {"nchw", "nhwc"}:
        raise UsageError(f"'{source}' to '{result}' is no change of axes", fix="Write nhwc nchw or nchw nhwc")
    tensors = TensorFile(options.file)
    axes = [source.index(axis) for axis in result]
    write_npz(
        options.output or options.file,
        {
            name: np.ascontiguousarray(values.transpose(axes))
            if (values := tensors[name]).ndim == 4
            else values
            for name in tensors
        },
    )
    return 0


def get_shape(arguments: Sequence[str]) -> int:
    """`get_shape FILE [NAME]`: shapes as commas between numbers."""
    parser = _parser("get_shape", "Print shapes.", "file")
    parser.add("name", nargs="?")
    options = parser.parse(arguments)
    tensors = TensorFile(options.file)
    if options.name is not None:
        _tensor(tensors, options.name)
    for name in [options.name] if options.name is not None else tensors:
        print(",".join(map(str, tensors.header(name).shape)))
    return 0


def visualize_diff(arguments: Sequence[str]) -> int:
    """`visualize_diff A B [--save FILE.html]`: a page with curves, histograms and figures of every tensor of A and B."""
    parser = _parser("visualize_diff", "Draw how the tensors of two files differ.", "target", "reference")
    parser.add("--save", default="visualize_diff.html", help="the page to write")
    options = parser.parse(arguments)
    target, reference = TensorFile(options.target), TensorFile(options.reference)
    shared = [name for name in target if name in reference]
    if not shared:
        raise UnknownTensorError(
            f"has no tensor of {options.reference}",
            where=options.target,
            fix=f"It has {', '.join(list(target)[:5])}",
        )
    writable(options.save)
    page = comparison_page(
        f"{options.target} and {options.reference}",
        [ComparedLayer(name, str(target[name].dtype)) for name in target],
        {name: target[name] for name in target},
        {name: reference[name] for name in shared},
        {"target": options.target, "reference": options.reference},
    )
    with write_atomically(options.save) as out:
        out.write(page.encode())
    print(f"{counted(len(shared), 'tensor')} drawn in {options.save}")
    return 0


_FUNCTIONS: dict[str, Callable[[Sequence[str]], int]] = {
    "compare": compare,
    "dump": dump,
    "to_dat": to_dat,
    "extract": extract,
    "rename": rename,
    "merge": merge,
    "to_bin": to_bin,
    "to_npy": to_npy,
    "int8_to_fp32": int8_to_fp32,
    "bf16_to_fp32": bf16_to_fp32,
    "tranpose": transpose,
    "transpose": transpose,
    "get_shape": get_shape,
    "visualize_diff": visualize_diff,
}
