"""A plugin that reads a format of its own: a network as lines of text.

tinynet 1
input x 1 8
scale 0.5
relu
"""

import numpy as np

from npuc import lang
from npuc.errors import InvalidModelError
from npuc.frontend.support import check_names
from npuc.ir import dtype_of
from npuc.plugins.api import Format, add_format

MOST_LINES = 1000


def lines_of(path):
    """The words of every line after the first; a file is not trusted."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.split() for line in file.read(1 << 20).splitlines()[1 : MOST_LINES + 1]]
    words = [line for line in lines if line]
    if not words or words[0][0] != "input" or len(words[0]) < 3:
        raise InvalidModelError("the second line is not 'input NAME SIZE...'", where=str(path))
    return words


def shape_of(path, options):
    """The name and shape of the input."""
    name, *sizes = lines_of(path)[0][1:]
    if not all(size.isdecimal() and 0 < int(size) < 1 << 20 for size in sizes):
        raise InvalidModelError(f"the shape of '{name}' is {' '.join(sizes)}", where=str(path))
    return name, options.input_shapes.get(name, tuple(map(int, sizes)))


def declared(path, options):
    """What the file says of its inputs."""
    return {shape_of(path, options)[0]: dtype_of("f32")}


def layers(path):
    """Number, kind and factor of each layer."""
    for number, (kind, *numbers) in enumerate(lines_of(path)[1:], 1):
        if kind not in ("scale", "relu") or len(numbers) != (kind == "scale"):
            raise InvalidModelError(f"line {number + 2} says '{kind}'", where=str(path))
        yield number, kind, float(numbers[0]) if numbers else 0.0


def importer(path, options):
    """The network; every layer is called line1, line2, ... unless the options cut it elsewhere."""
    name, shape = shape_of(path, options)
    tensors = {name: lang.input(name, shape)}
    y = tensors[name]
    for number, kind, factor in layers(path):
        title = f"line{number}"
        y = lang.relu(y, name=title) if kind == "relu" else lang.mul(y, np.float32(factor), name=title)
        tensors[title] = y
    check_names(options.outputs, list(tensors), "--outputs")
    outputs = options.outputs or (list(tensors)[-1],)
    return lang.build({name: tensors[name] for name in outputs})


class Original:
    """The reference of the import check: the same in NumPy, with the interface of `npuc.import_check.original.Original`."""

    runtime = "NumPy"
    mixed = 0
    random = frozenset()

    def __init__(self, path, graph, input_types, options, threads=None):
        self.path, self.outputs = path, [port.name for port in graph.outputs]
        self.comparable = [
            f"line{number}" for number, _, _ in layers(path) if f"line{number}" in graph.tensor_names()
        ]

    def run(self, inputs, names):
        """The values of some tensors."""
        (value,) = inputs.values()
        values = {}
        for number, kind, factor in layers(self.path):
            value = np.maximum(value, 0) if kind == "relu" else value * np.float32(factor)
            values[f"line{number}"] = value
        return {name: values[name] for name in names}


add_format(
    "tinynet",
    Format("a tiny network", f"{__name__}:importer", f"{__name__}:declared", f"{__name__}:Original"),
    recognises=lambda path, head: head.startswith(b"tinynet 1"),
)
