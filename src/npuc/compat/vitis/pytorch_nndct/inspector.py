"""`Inspector`: which layers of a module the DPU runs, before anything is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuc.compat.vitis.notices import note, refusal, warn
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of, placed
from npuc.compat.vitis.targets import resolve_target
from npuc.errors import UsageError
from npuc.files import make_folder, write_atomically
from npuc.flow import expanded
from npuc.inspect.inspection import InspectedLayer, Inspection, inspect_graph
from npuc.inspect.svg import svg_of
from npuc.integrations.torch.live import from_torch
from npuc.ir import Graph, result_names


class Inspector:
    """Inspects modules for one target: a name, a fingerprint or an arch.json file."""

    def __init__(self, name_or_fingerprint: str) -> None:
        if not isinstance(name_or_fingerprint, str):
            raise refusal(
                "QUANTIZER_TORCH_INSPECTOR_INPUT_FORMAT",
                f"the target of an inspector is a {type(name_or_fingerprint).__name__}",
                "Give a name such as 'DPUCZDX8G_ISA1_B4096', or a fingerprint",
            )
        self.name = name_or_fingerprint
        self.target = resolve_target(name_or_fingerprint)

    def inspect(
        self,
        module: Any,
        input_args: Any,
        device: Any = None,
        output_dir: Path | str = "quantize_result",
        verbose_level: int = 1,
        image_format: str | None = None,
    ) -> Inspection:
        """Write `inspect_TARGET.txt` and, with an image format, a drawing and its graph as `.gv`."""
        if image_format not in (None, "svg", "png"):
            raise UsageError(f"image_format is {image_format!r}", fix="Give 'svg', 'png' or None")
        note("=>Start to inspect model...")
        placed(device)
        graph = expanded(from_torch(module_of(module), arguments_tuple(input_args)))
        inspection, shown = inspect_graph(graph, self.target)
        folder = make_folder(Path(output_dir))
        stem = f"inspect_{self.name.replace('/', '_')}"
        _write(folder / f"{stem}.txt", report_of(inspection))
        if image_format is not None:
            if image_format == "png":
                warn("drawings are SVG here: the .svg file holds what the .png would")
            _write(folder / f"{stem}.svg", svg_of(shown, inspection))
            _write(folder / f"{stem}.gv", dot_of(shown, inspection))
        for layer in inspection.layers if verbose_level else ():
            if layer.device == "cpu" or verbose_level > 1:
                note(_line(layer))
        note(
            f"{inspection.count('npu')} layers on the DPU, {inspection.count('cpu')} on the CPU: {folder / stem}.txt"
        )
        note("=>Finish inspecting.")
        return inspection


def report_of(inspection: Inspection) -> str:
    """An inspection as text."""
    head = [
        f"target: {inspection.target}",
        f"layers on the DPU: {inspection.count('npu')}",
        f"layers on the CPU: {inspection.count('cpu')}",
        f"multiply-accumulates on the DPU: {100 * inspection.share:.1f} % of {inspection.macs}",
        *(f"note: {text}" for text in inspection.notes),
        "",
    ]
    return "\n".join([*head, *map(_line, inspection.layers), ""])


def _line(layer: InspectedLayer) -> str:
    device = {"npu": "DPU", "cpu": "CPU"}.get(layer.device, layer.device)
    reason = f": {layer.reason}" if layer.reason else ""
    return f"{layer.name or layer.layer} ({layer.kind}) is assigned to {device}{reason}"


def dot_of(graph: Graph, inspection: Inspection) -> str:
    """The layers and what they read, in the language of Graphviz."""
    device = {layer.name: layer.device for layer in inspection.layers}
    lines = ["digraph inspection {", "  node [shape=box, style=filled];"]
    maker = {port.value: port.name for port in graph.inputs}
    lines += [f"  {_quoted(port.name)} [fillcolor=white];" for port in graph.inputs]
    for op in graph.ops:
        name = result_names(op)[0] if op.results else ""
        if name not in device:
            continue
        maker |= dict.fromkeys(op.results, name)
        colour = "lightblue" if device[name] == "npu" else "orange"
        lines.append(f"  {_quoted(name)} [fillcolor={colour}];")
        lines += [f"  {_quoted(maker[value])} -> {_quoted(name)};" for value in op.operands if value in maker]
    return "\n".join([*lines, "}", ""])


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as out:
        out.write(text.encode())
