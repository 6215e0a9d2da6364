"""The report of every integration: its nodes, the share of multiply-accumulates on the NPU, and for each node that is not there
the reason and the lever.

    >>> npu = ReportedNode("conv1", "conv", "npu", 900)
    >>> left = ReportedNode("cumsum", "CumSum", "framework", 100, "it has no integer form", "Compute it outside of the model")
    >>> report = IntegrationReport("torch.compile", "edge-4t", (npu, left))
    >>> report.npu_share
    0.9
    >>> print(report)
    torch.compile for edge-4t: 2 nodes in 1 graph, 1 on the NPU; 90.0 % of 1,000 MACs on the NPU
      framework  cumsum: it has no integer form. Compute it outside of the model

Reasons and levers are those of `npuc compile` and `npuc inspect`; only nodes that the framework keeps to itself bring their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.errors import UsageError
from npuc.files import write_atomically
from npuc.inspect.inspection import inspection_of
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.codegen.compile_model import Compilation
    from npuc.ir import Graph
    from npuc.target import Target

FRAMEWORK = "framework"
"""The device of a node that the framework keeps: npuc's program does not have it."""
_SHOWN = 3
"""Names that are written out for one reason."""


@dataclass(frozen=True)
class ReportedNode:
    """Where a node of the network runs."""

    name: str
    kind: str
    device: str
    """`npu`; `cpu` for a CPU part of npuc's program, `host` for its conversions, `framework` for what is left to the
    framework, or the name of an accelerator."""
    macs: int = 0
    reason: str = ""
    """Why it is not on the NPU; empty if it is."""
    lever: str = ""
    """What would bring it to the NPU, where something is known."""


@dataclass(frozen=True)
class IntegrationReport:
    """What runs where, of everything that one session or compiled module has of a network."""

    integration: str
    """How the network was brought in, such as `torch.compile` or `ONNX Runtime`."""
    target: str
    nodes: tuple[ReportedNode, ...]
    graphs: int = 1
    """Programs for the NPU, or graphs that would have become one: a graph break, or nodes between, cut the network."""
    notes: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """All multiply-accumulates that are known of."""
        return sum(node.macs for node in self.nodes)

    @property
    def npu_macs(self) -> int:
        """Those on the NPU."""
        return sum(node.macs for node in self.nodes if node.device == "npu")

    @property
    def npu_share(self) -> float:
        """The share of multiply-accumulates on the NPU; 1 if there are none."""
        return self.npu_macs / self.macs if self.macs else 1.0

    @property
    def rest(self) -> tuple[ReportedNode, ...]:
        """Nodes that compute, and not on the NPU."""
        return tuple(node for node in self.nodes if node.device not in ("npu", "host"))

    def tell(self, option: bool | str | Path) -> None:
        """What the option `report` asks for: print it on stderr, write it as JSON to a path, or neither."""
        if option is True:
            print(self, file=sys.stderr)
        elif option:
            with write_atomically(option) as out:
                out.write((json.dumps(self.as_json(), indent=1) + "\n").encode())

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON; `from_json` takes them back."""
        return {
            "integration": self.integration,
            "target": self.target,
            "graphs": self.graphs,
            "node_count": len(self.nodes),
            "npu_nodes": sum(node.device == "npu" for node in self.nodes),
            "macs": self.macs,
            "npu_macs": self.npu_macs,
            "npu_share": self.npu_share,
            "nodes": [asdict(node) for node in self.nodes],
            "notes": list(self.notes),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> IntegrationReport:
        """The report that a cache or a saved module has kept."""
        try:
            return IntegrationReport(
                str(values["integration"]),
                str(values["target"]),
                tuple(
                    ReportedNode(
                        str(node["name"]),
                        str(node["kind"]),
                        str(node["device"]),
                        int(node["macs"]),
                        str(node["reason"]),
                        str(node["lever"]),
                    )
                    for node in values["nodes"]
                ),
                int(values["graphs"]),
                tuple(str(note) for note in values["notes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                "a report of an integration is not whole", fix="Compile the network again"
            ) from error

    def __str__(self) -> str:
        npu = sum(node.device == "npu" for node in self.nodes)
        graphs = counted(self.graphs, "graph")
        words = f"{self.integration} for {self.target}: {counted(len(self.nodes), 'node')} in {graphs}, {npu} on the NPU"
        if self.macs:
            words += f"; {100 * self.npu_share:.1f} % of {self.macs:,} MACs on the NPU"
        lines = [words]
        groups: dict[tuple[str, str, str], list[str]] = {}
        for node in self.rest:
            groups.setdefault((node.device, node.reason, node.lever), []).append(node.name or node.kind)
        for (device, reason, lever), names in sorted(groups.items(), key=lambda item: -len(item[1])):
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            shown = "CPU" if device == "cpu" else device
            because = ". ".join(part for part in (reason, lever) if part)
            lines.append(f"  {shown:10} {', '.join(names[:_SHOWN])}{more}{f': {because}' if because else ''}")
        lines += [f"  {'note':10} {note}" for note in self.notes]
        return "\n".join(lines)


def report_of(
    integration: str,
    source: Graph,
    compilation: Compilation,
    target: Target,
    left: Iterable[ReportedNode] = (),
    notes: Iterable[str] = (),
) -> IntegrationReport:
    """The report of a compiled network. `source` is the float network whose layers are listed (`Quantized.source`), `left`
    are nodes that the framework kept.
    """
    inspection = inspection_of(source, compilation.partition, target, tuple(notes))
    nodes = [
        ReportedNode(
            layer.name or layer.layer, layer.kind, layer.device, layer.macs, layer.reason, layer.lever
        )
        for layer in inspection.layers
    ]
    return IntegrationReport(integration, target.name, (*nodes, *left), 1, inspection.notes)


def joined(reports: Iterable[IntegrationReport]) -> IntegrationReport:
    """Several graphs of one network as one report; notes that they share are written once.

    >>> report = IntegrationReport("torch.compile", "edge-4t", (ReportedNode("a", "relu", "npu"),), notes=("n",))
    >>> joined([report, report]).graphs, joined([report, report]).notes
    (2, ('n',))
    """
    every = list(reports)
    if not every:
        raise UsageError("there is nothing to report: no graph was handed to npuc yet")
    return replace(
        every[0],
        nodes=tuple(node for report in every for node in report.nodes),
        graphs=sum(report.graphs for report in every),
        notes=tuple(dict.fromkeys(note for report in every for note in report.notes)),
    )
