"""`visual.py`: a float network and its quantized form side by side in the browser.

It opens npuc's studio on the two networks and the input. Where the studio is not installed, or other machines are to be let in,
which the studio never does, a page with the figures, curves and histograms of every tensor is served in its place.
"""

from __future__ import annotations

import os
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

from npuc.compare.page import ComparedLayer, comparison_page
from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.compat.tpumlir.inputs import read_inputs, real_tensors
from npuc.compat.tpumlir.names import names_of
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import MissingExtraError, OutputError, UsageError
from npuc.files import existing_file, writable, write_atomically
from npuc.flow import load_model
from npuc.ir import Graph, top, value_name
from npuc.quant.report import is_integer

_HERE = "127.0.0.1"
_MAX_ATTRIBUTES = 400
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The page has nothing outside of it."""


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("visual.py", "Compare a float network with its quantized form in the browser.")
    own.add("--f32_mlir", required=True, help="the .mlir file of model_transform.py")
    own.add("--quant_mlir", required=True, help="the _tpu.mlir file of model_deploy.py")
    own.add("--input", required=True, help="an image or an .npz file")
    own.add("--port", type=int, default=10000)
    own.add("--host", default=_HERE, help="the address to listen at; 0.0.0.0 lets other machines in")
    own.add("--manual_run", action="store_true", help="run the networks when that is asked for, not before")
    own.add("--output", help="write a page to this .html file, and serve nothing")
    return own


def main(arguments: list[str]) -> int:
    """Run the command; it serves the page until it is interrupted."""
    options = parser().parse(arguments)
    for path in (options.f32_mlir, options.quant_mlir, options.input):
        existing_file(path)
    if options.output is not None:
        writable(options.output)
        with write_atomically(options.output) as out:
            out.write(page(options).encode())
        print(f"written to {options.output}")
        return 0
    if options.host == _HERE:
        try:
            _open_studio(options)
            return 0
        except MissingExtraError as error:
            warn(f"visual.py shows a plain page: {error.message}. {error.fix}")
    _serve(options)
    return 0


def _open_studio(options: Namespace) -> None:
    """The studio on the quantized network, compared with the float one on the input; without its parts `MissingExtraError`."""
    from npuc.studio.project import Project
    from npuc.studio.serving import serve
    from npuc.studio.studio import Studio

    _require_integers(options.quant_mlir, load_model(options.quant_mlir))
    project, (quantized, floats, sample) = Project.of(
        [Path(options.quant_mlir), Path(options.f32_mlir), Path(options.input)]
    )
    start = {
        "a": quantized,
        "b": floats,
        "sample": sample,
        "tab": "graph" if options.manual_run else "numbers",
    }
    studio = Studio(project, threads=len(os.sched_getaffinity(0)))
    serve(studio, options.port, urlencode(start), browser=True, say=lambda words: print(words, flush=True))


def _require_integers(path: str, graph: Graph) -> None:
    if not is_integer(graph):
        raise UsageError(f"{path} is no quantized network", fix="model_deploy.py writes the _tpu.mlir file")


def page(options: Namespace) -> str:
    """Run both networks and compare every tensor of the quantized one."""
    floats, integers = load_model(options.f32_mlir), load_model(options.quant_mlir)
    _require_integers(options.quant_mlir, integers)
    inputs = read_inputs(floats, options.input, "--input")
    reference = real_tensors(floats, {**inputs, **FloatEngine(floats, fetch=ALL_TENSORS).run(inputs)})
    engine = IntegerEngine(integers, fetch=ALL_TENSORS, threads=len(os.sched_getaffinity(0)))
    values = {**inputs, **engine.run(inputs)}
    names = names_of(floats)
    notes = {
        "folder": str(Path.cwd()),
        "f32 mlir": options.f32_mlir,
        "quant mlir": options.quant_mlir,
        "input": options.input,
    }
    return comparison_page(
        f"{floats.name or Path(options.f32_mlir).stem}: float and quantized",
        _layers(integers, names.vendor_name),
        names.outward(values),
        names.outward(reference),
        notes,
    )


def _layers(graph: Graph, spelled: object) -> list[ComparedLayer]:
    """The tensors of a network in order, with what their ops say of themselves."""
    assert callable(spelled)
    layers = [ComparedLayer(spelled(port.name), "input") for port in graph.inputs]
    for op in graph.ops:
        if isinstance(op, top.WeightOp):
            continue
        attributes = ", ".join(f"{key} = {value}" for key, value in op.properties.items())[:_MAX_ATTRIBUTES]
        layers += [ComparedLayer(spelled(value_name(value)), op.name, attributes) for value in op.results]
    return layers


def _serve(options: Namespace) -> None:
    kept = "" if options.manual_run else page(options)

    class Handler(BaseHTTPRequestHandler):
        """Answers with the page, whatever is asked."""

        def do_GET(self) -> None:
            nonlocal kept
            kept = kept or page(options)
            text = kept.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing about requests."""

    try:
        server = ThreadingHTTPServer((options.host, options.port), Handler)
    except OSError as error:
        raise OutputError(
            f"cannot listen at {options.host}:{options.port}: {error.strerror}", fix="Choose another --port"
        ) from error
    with server:
        print(f"http://{options.host}:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
