"""`xdputil`: run a compiled model or one of its layers on raw files, and look at what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.arguments import VendorParser
from npuc.compat.vitis.dumps import DumpFolder, file_stem, read_tensor, stored_bytes
from npuc.compat.vitis.xir import Graph, Op, Subgraph, Tensor
from npuc.compat.vitis.xmodels import open_xmodel
from npuc.debug.dump import Dump, DumpWriter
from npuc.debug.layers import LayerTensor
from npuc.debug.opening import Opened, open_layers
from npuc.debug.single import run_layer
from npuc.errors import CompareError, FileFormatError, FileMissingError, UsageError
from npuc.files import existing_file, existing_model, make_folder, write_atomically
from npuc.ir import Graph as Network
from npuc.ir.dtypes import dtype_of
from npuc.program.model import CompiledModel
from npuc.runtime import Runner
from npuc.words import counted

_ON = {"1", "true", "on", "yes"}
_USAGE = """\
usage: xdputil COMMAND ...

  run XMODEL INPUT.bin...      run a model on raw tensors
  xmodel XMODEL [-s F.svg] [-p F.png] [-t F.txt] [-l] [--op NAME]
                               what is in a model
  run_op XMODEL OP [-r REF_DIR] [-d DUMP_DIR]
                               run one op on the tensors of a folder
  comp_float GOLDEN DUMP [-t PERCENT] [--verbose]
                               compare two files of float32
  query                        the device

'xdputil COMMAND --help' shows more.
"""


def main(arguments: list[str]) -> int:
    """`xdputil`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0 if arguments else 2
    command = _COMMANDS.get(arguments[0])
    if command is None:
        raise UsageError(f"xdputil has no command '{arguments[0]}'", fix=f"There are: {', '.join(_COMMANDS)}")
    return command(arguments[1:])


def _enabled(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _ON


# run


def _run(arguments: list[str]) -> int:
    parser = VendorParser("xdputil run", "Run a model on raw tensors, in the order of its inputs.")
    parser.add("xmodel", help="The compiled model.")
    parser.add(
        "inputs", nargs="+", metavar="INPUT.bin", help="Integers of the DPU or float32, N x H x W x C."
    )
    parser.add(
        "-i",
        "--subgraph_index",
        type=int,
        help="One subgraph alone, by its index in 'xdputil xmodel -l'; without it, the whole model.",
    )
    given = parser.parse(arguments)
    opened = open_layers(_compiled(given.xmodel))
    model = opened.compiled
    assert model is not None
    golden = os.environ.get("XLNX_GOLDEN_DIR")
    traced = _enabled("XLNX_ENABLE_DUMP") or bool(golden)
    if given.subgraph_index is not None:
        part = _part(Graph(model), given.subgraph_index)
        if traced and len(Graph(model).parts) > 1:
            raise UsageError(
                "XLNX_ENABLE_DUMP and XLNX_GOLDEN_DIR are for whole models",
                fix="Leave out -i: the folder then has the layers of all subgraphs",
            )
        model = model if traced else part.part().model
    raws = Runner(model, raw=True).input_tensors
    if len(given.inputs) != len(raws):
        what = "the model" if given.subgraph_index is None else f"subgraph {given.subgraph_index}"
        names = ", ".join(tensor.name for tensor in raws)
        raise UsageError(
            f"{what} takes {counted(len(raws), 'input')}, and {counted(len(given.inputs), 'file')} were given",
            fix=f"Its inputs: {names}",
        )
    reals = {
        tensor.name: _input_of(Path(file), tensor) for file, tensor in zip(given.inputs, raws, strict=True)
    }
    outputs = Runner(model, raw_outputs=True).run(reals)
    if traced:
        _trace(opened, reals, golden)
    for name, array in outputs.items():
        path = DumpFolder(".").write(name, array, text=False)
        print(f"{name}: {list(array.shape)} {array.dtype}, md5 {_md5(array)}, {path}")
    return 0


def _part(graph: Graph, index: int) -> Subgraph:
    """The subgraph of an index, which counts as the vendor's tools do: 0 is the data that a user gives."""
    if not 1 <= index <= len(graph.parts):
        known = ", ".join(f"{at} ({part.get_name()})" for at, part in enumerate(graph.parts, 1))
        raise UsageError(f"-i {index}: the model has no such subgraph that computes", fix=f"It has {known}")
    return graph.parts[index - 1]


def _input_of(path: Path, tensor: Any) -> Array:
    """The reals of an input file: the integers that the DPU takes, or float32, by its size."""
    size = existing_file(path).stat().st_size
    count = int(np.prod(tensor.shape))
    if tensor.dtype.kind in "iu" and size == count * tensor.dtype.itemsize:
        integers = read_tensor(path, tensor.shape, tensor.dtype)
        return np.asarray((integers.astype(np.float64) - tensor.zero_point) * tensor.scale, np.float32)
    if size == 4 * count:
        return read_tensor(path, tensor.shape, np.dtype(np.float32))
    kinds = "float32" if tensor.dtype.kind == "f" else f"{tensor.dtype} or float32"
    raise FileFormatError(
        f"has {size} bytes; input '{tensor.name}' has {count} elements of {kinds}",
        where=str(path),
    )


def _trace(opened: Opened, inputs: dict[str, Array], golden: str | None) -> None:
    """Run layer by layer: write all tensors into `dump/`, and hold them against golden files."""
    folder = DumpFolder("dump") if _enabled("XLNX_ENABLE_DUMP") else None
    if golden is not None and not Path(golden).is_dir():
        raise FileMissingError("is no folder", where=f"XLNX_GOLDEN_DIR={golden}")

    def visit(tensor: LayerTensor) -> bool:
        if folder is not None:
            folder.write(tensor.name, tensor.values)
        file = None if golden is None else Path(golden) / f"{file_stem(tensor.name)}.bin"
        if file is not None and tensor.scale and file.is_file():
            same = file.read_bytes() == stored_bytes(tensor.values)
            verdict = "success !layer_name" if same else "fail ! layer_name"
            line = f"XLNX_GOLDEN_DIR: compare data {verdict} {tensor.name} dump_md5 {_md5(tensor.values)}"
            print(line, file=sys.stderr)
        return False

    opened.layers().trace(inputs, visit)


def _md5(array: Array) -> str:
    return hashlib.md5(stored_bytes(array), usedforsecurity=False).hexdigest()


# xmodel


def _xmodel(arguments: list[str]) -> int:
    parser = VendorParser("xdputil xmodel", "Show what is in a model.")
    parser.add("xmodel", help="The model.")
    parser.add("-s", "--svg", metavar="F.svg", help="Draw its ops.")
    parser.add("-p", "--png", metavar="F.png", help="Draw its ops (as SVG, beside the name that is given).")
    parser.add("-t", "--txt", metavar="F.txt", help="List its ops.")
    parser.add("-l", "--list", action="store_true", help="List its subgraphs as JSON.")
    parser.add("-m", "--meta_info", action="store_true", help="The target and the size of the model.")
    parser.add("--op", metavar="NAME", help="Show one op as JSON.")
    given = parser.parse(arguments)
    graph = Graph(open_xmodel(given.xmodel))
    if given.svg:
        _write(Path(given.svg), drawing_of(graph))
    if given.png:
        path = Path(given.png).with_suffix(".svg")
        _write(path, drawing_of(graph))
        print(f"note: drawings are SVG here: {path}", file=sys.stderr)
    if given.txt:
        _write(Path(given.txt), "".join(f"{_op_line(op)}\n" for op in graph.toposort()))
    if given.op:
        print(json.dumps(_op_json(graph.get_op(given.op)), indent=2))
    if given.list:
        parts = [{"index": at, **_subgraph_json(part)} for at, part in enumerate(graph.parts, 1)]
        print(json.dumps({"subgraphs": parts}, indent=2))
    if given.meta_info or not (given.svg or given.png or given.txt or given.op or given.list):
        print(json.dumps(_meta(graph), indent=2))
    return 0


def drawing_of(graph: Graph) -> str:
    """The ops of a graph from top to bottom, each with what it reads, as SVG without any other program."""
    ops = [op for op in graph.toposort() if op.get_type() != "const"]
    place = {id(op): number for number, op in enumerate(ops)}
    height, width = 44 * len(ops) + 20, 640
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
    ]
    for number, op in enumerate(ops):
        y = 10 + 44 * number
        colour = "#ffffff" if op.get_type() == "data" else "#b7d7f0"
        lines.append(f'<rect x="140" y="{y}" width="480" height="30" fill="{colour}" stroke="#555"/>')
        lines.append(f'<text x="150" y="{y + 19}">{escape(_op_line(op)[:90])}</text>')
        for source in op.get_input_ops()["input"]:
            if id(source) in place:
                x, from_y = 140 - 12 * min(10, number - place[id(source)]), 25 + 44 * place[id(source)]
                lines.append(f'<path d="M140 {from_y} H{x} V{y + 15} H140" fill="none" stroke="#999"/>')
    return "\n".join([*lines, "</svg>", ""])


def _op_line(op: Op) -> str:
    tensor = op.get_output_tensor()
    fraction = f" fix_point {tensor.get_attr('fix_point')}" if tensor.has_attr("fix_point") else ""
    return f"{op.get_type()} {op.get_name()} {tensor.dims} {tensor.dtype}{fraction}"


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": tensor.dims, "type": tensor.dtype, **tensor.get_attrs()}


def _op_json(op: Op) -> dict[str, Any]:
    return {
        "name": op.get_name(),
        "type": op.get_type(),
        "attrs": op.get_attrs(),
        "inputs": [_tensor_json(tensor) for tensor in op.get_input_tensors()],
        "outputs": [_tensor_json(op.get_output_tensor())],
    }


def _subgraph_json(part: Any) -> dict[str, Any]:
    return {
        "name": part.get_name(),
        "device": part.get_attr("device"),
        "fingerprint": part.get_attr("dpu_fingerprint") if part.has_attr("dpu_fingerprint") else "",
        "inputs": [_tensor_json(tensor) for tensor in part.get_input_tensors()],
        "outputs": [_tensor_json(tensor) for tensor in part.get_output_tensors()],
    }


def _meta(graph: Graph) -> dict[str, Any]:
    if isinstance(graph.content, Network):
        return {"kind": "quantized", "ops": len(graph.toposort())}
    return {
        "kind": "compiled",
        "name": graph.get_name(),
        "target": graph.content.target.get("name"),
        "fingerprint": f"0x{graph.content.fingerprint:016x}",
        "subgraphs": len(graph.parts),
        "ops": len(graph.toposort()),
    }


# run_op


def _run_op(arguments: list[str]) -> int:
    parser = VendorParser("xdputil run_op", "Run one op of a model on the tensors of a folder.")
    parser.add("xmodel", help="The model.")
    parser.add("op_name", help="The op, by its name in the model.")
    parser.add(
        "-r", "--ref_dir", default="ref", help="The folder of its inputs: <TENSOR_NAME>.bin, '/' as '_'."
    )
    parser.add("-d", "--dump_dir", default="dump", help="The folder for its result.")
    given = parser.parse(arguments)
    path = existing_model(given.xmodel)
    op = Graph(open_xmodel(path)).get_op(given.op_name)
    reference = make_folder(Path(given.ref_dir))
    opened = open_layers(path)
    with tempfile.TemporaryDirectory(prefix="npuc-run-op-") as folder:
        writer = DumpWriter(Path(folder) / "dump", path.name)
        for source in op.get_input_ops()["input"]:
            if source.get_type() == "const":
                continue
            tensor = source.get_output_tensor()
            file = reference / f"{file_stem(tensor.name)}.bin"
            values = read_tensor(file, tensor.logical_shape, dtype_of(tensor.stored_type).numpy)
            writer.add(0, LayerTensor(tensor.name, "", "input", tensor.stored_type, tensor.scale, 0, values))
        writer.finish()
        results = run_layer(opened, given.op_name, Dump(Path(folder) / "dump"))
    dumps = DumpFolder(given.dump_dir)
    for result in results:
        print(f"dump output to {dumps.write(result.name, result.values, text=False)}")
    print("test pass")
    return 0


# comp_float, query


def _comp_float(arguments: list[str]) -> int:
    parser = VendorParser("xdputil comp_float", "Compare two files of float32.")
    parser.add("golden", help="The reference.")
    parser.add("dump", help="What is held against it.")
    parser.add("-t", "--threshold", type=float, default=0.5, help="The largest difference, in percent.")
    parser.add("--verbose", action="store_true", help="Show the elements that differ.")
    given = parser.parse(arguments)
    golden, dump = (_floats(Path(path)) for path in (given.golden, given.dump))
    if golden.size != dump.size:
        raise CompareError(f"{given.golden} has {golden.size} elements, and {given.dump} has {dump.size}")
    size = np.where(golden == 0, 1.0, np.abs(golden))
    percent = 100 * np.abs(dump - golden) / size
    apart = np.flatnonzero(~(percent <= given.threshold))
    if not apart.size:
        print("golden file and dump file are the same!")
        return 0
    for index in apart[: apart.size if given.verbose else 1]:
        print(f"element {index}: golden {golden[index]:.9g}, dump {dump[index]:.9g}, {percent[index]:.3f} %")
    print(f"{apart.size} of {golden.size} elements differ by more than {given.threshold:g} %")
    return 1


def _floats(path: Path) -> Array:
    data = existing_file(path).read_bytes()
    if len(data) % 4 or not data:
        raise FileFormatError(f"has {len(data)} bytes, which are no float32 elements", where=str(path))
    return np.frombuffer(data, "<f4").astype(np.float64)


def _query(arguments: list[str]) -> int:
    VendorParser("xdputil query", "The device.").parse(arguments)
    print(
        json.dumps(
            {"device": "simulated", "DPU": "npuc's simulator: it runs programs for every target"}, indent=2
        )
    )
    return 0


def _compiled(path: str) -> Path:
    if not isinstance(open_xmodel(path), CompiledModel):
        raise FileFormatError(
            "is quantized, and not compiled", where=path, fix="Compile it: vai_c_xir -x ... -a ..."
        )
    return Path(path)


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as out:
        out.write(text.encode())


_COMMANDS = {
    "run": _run,
    "xmodel": _xmodel,
    "run_op": _run_op,
    "comp_float": _comp_float,
    "query": _query,
}
