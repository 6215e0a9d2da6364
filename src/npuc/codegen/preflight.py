"""What is wrong with a compilation that can be told before the network is quantized: calibration may take minutes, and a
typo is not worth waiting for."""

from __future__ import annotations

import re

from npuc.codegen.compile_model import CompileOptions
from npuc.codegen.outputs import check_outputs
from npuc.errors import ScheduleError
from npuc.ir import Graph, layer_name, result_names, top
from npuc.partition.overrides import check_devices
from npuc.schedule.schedule_file import check_machine, near
from npuc.target import Target


def check_options(graph: Graph, target: Target, options: CompileOptions) -> None:
    """Refuse what no quantized form of a network can follow: layers that there are not, more than the machine has, and
    outputs of an open shape. What passes may still fail: names and sizes of the integer program are known later."""
    check_outputs(graph)
    names = {port.name for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            names |= {*result_names(op), layer_name(op)} - {""}
    names.update(name for others in graph.layer_aliases().values() for name in others)
    check_devices(names, options.devices)
    cores = min(options.cores or target.compute.cores, target.compute.cores)
    schedule = options.schedule
    for title, entry in (("", schedule), *schedule.subgraphs.items()):
        if title and not re.fullmatch(r"npu[0-9]+", title):
            raise ScheduleError(
                f"there is no subgraph '{title}' on the NPU",
                fix="They are called npu and a number, such as npu1",
            )
        check_machine(entry, target, cores)
        for layer in (layer for group in entry.groups for layer in group.layers):
            if layer not in names and layer.rpartition("/")[0] not in names:
                where = f"subgraph '{title}'" if title else None
                raise ScheduleError(
                    f"there is no layer '{layer}'",
                    where=where,
                    fix=near(layer, sorted(names), "The first are"),
                )
