"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.errors import FileFormatError, PreprocessError, UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.cli.console import Printer
    from npuc.cli.preprocessing import PreprocessingOptions
    from npuc.frontend.options import ImportOptions
    from npuc.images.preprocess import Preprocess
    from npuc.ir import Graph
    from npuc.program.model import CompiledModel
    from npuc.target import Target as TargetDescription

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, the rest on stderr.")]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="An .mlir file written by npuc, or a model in any format that 'npuc import' reads.",
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="[NAME=]1,3,224,224",
        help="The shape of an input; repeat the option for several inputs. NAME= may be left out if there is only "
        "one.",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="A,B",
        help="Cut the network: these tensors, or the results of these nodes, become its inputs.",
    ),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        "--outputs",
        metavar="C,D",
        help="Cut the network: these tensors, or the results of these nodes, become its outputs.",
    ),
]
INTERPOLATION_HELP = (
    "How to resize: bilinear, bicubic or nearest as Pillow does; opencv-linear, opencv-linear-exact, opencv-nearest or "
    "opencv-nearest-exact."
)
"""Of `--interpolation`."""

Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The weights of a Caffe, Darknet or Keras model, or the checkpoint of a TensorFlow graph.  [default: the file "
        "of the same name beside a .prototxt, .cfg or .pb, those inside a Keras file]",
    ),
]
Postprocess = Annotated[
    str | None,
    typer.Option(
        "--add-postprocess",
        metavar="KIND[:NAME=VALUE,...]",
        help="Append post-processing to the network: yolov2 to yolov11 and variants such as yolov3_tiny, yolox, ssd, softmax "
        "or topk.",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]


def at_most_cores(threads: int | None) -> int | None:
    """What was asked for, or the number of cores if that is less."""
    # A pool of more threads than cores is slower, and one of a million takes the machine down.
    return threads if threads is None else min(threads, len(os.sched_getaffinity(0)))


Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        callback=at_most_cores,
        help="The number of threads, at most one per core.  [default: all cores]",
    ),
]
TorchDevice = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|cuda",
        help="Where float networks are computed: with cuda (or cuda:N), in torch on a GPU.  [default: cpu]",
    ),
]
OneThread = Annotated[
    int, typer.Option(min=1, callback=at_most_cores, help="The number of threads, at most one per core.")
]

Target = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.yaml",
        help="The machine to compile for: a name from 'npuc targets list', or a target file.",
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="LAYER=cpu|npu",
        help="Run a layer on this device; * and ? match any characters. Repeat the option for several layers.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="INPUT=OUTPUT",
        help="The network carries a state: in each run, this input is what this output gave in the run before. Repeat the option "
        "for several states.",
    ),
]
IslandThreshold = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="How many times the cost of moving its data a small NPU subgraph between CPU layers has to save; "
        "otherwise its layers run on the CPU. 0 keeps every NPU subgraph.",
    ),
]
MinOps = Annotated[
    int,
    typer.Option(
        "--min-ops",
        min=1,
        help="Give NPU subgraphs of fewer ops than this to the CPU, where it can run them.",
    ),
]

ANY_INPUT = ""
"""The name that stands for the only input of a model."""


EntryName = Annotated[
    str,
    typer.Option(
        "--entry",
        metavar="NAME",
        help="Of a program with several entries (npuc combine), the one to take.  [default: the first]",
    ),
]
SubgraphName = Annotated[
    str,
    typer.Option(
        "--subgraph",
        metavar="NAME",
        help="Only this subgraph of a compiled model, by name or number ('npuc objdump' lists them).",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.pem",
        help="A public key (Ed25519): refuse a compiled model that it has not signed (npuc sign).",
    ),
]


def compiled_model(path: Path, target: TargetDescription | None = None, entry: str = "") -> CompiledModel:
    """A compiled model; a model that is not compiled yet is told from a damaged file."""
    from npuc.program.file import named_entry

    return named_entry(compiled_entries(path, target), entry, str(path))


def check_entry(entry: str, models: Iterable[Path]) -> None:
    """Refuse --entry where no model is a program with several."""
    from npuc.frontend.sniff import describe_content
    from npuc.program.file import load_entries

    if not entry:
        return
    compiled = [path for path in models if path.is_file() and describe_content(path).kind == "npu"]
    if not any(len(load_entries(path, verify=False)) > 1 for path in compiled):
        raise UsageError(
            f"--entry {entry} is for a program with several entries (npuc combine), and none is given",
            fix="Leave it out",
        )


def compiled_entries(path: Path, target: TargetDescription | None = None) -> dict[str, CompiledModel]:
    """The entries of a program by name; a model that is not compiled yet is told from a damaged file."""
    from npuc.files import existing_file
    from npuc.frontend.sniff import describe_content
    from npuc.program.file import load_entries

    content = describe_content(existing_file(path))
    if content.kind not in ("npu", "other") and path.suffix != ".npu":
        raise FileFormatError(
            f"{content.words}; a compiled model (.npu) is needed",
            where=str(path),
            fix=f"Compile it first: npuc compile {path} --target NAME -o {path.with_suffix('.npu').name}",
        )
    return load_entries(path, target)


def result(path: Path, suffix: str, flag: str = "-o") -> Path:
    """The path of a result, if it is named after what it will be and can be written; asked before long work."""
    from npuc.files import writable

    if path.suffix != suffix:
        better = path.parent / f"{path.stem or 'result'}{suffix}"
        raise UsageError(f"{flag} '{path}' does not end in {suffix}", fix=f"Use {flag} {better}")
    return writable(path)


def names(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas.

    >>> names("a, b")
    ('a', 'b')
    """
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`x=1,3,224,224` or `1,3,224,224`; the latter is for `ANY_INPUT`."""
    by_name: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, sizes = text.rpartition("=")
        try:
            shape = (
                tuple(int(part) for part in sizes.strip("[]() ").split(",")) if sizes.strip("[]() ") else ()
            )
        except ValueError as error:
            raise UsageError(
                f"--input-shape '{text}' is not a shape", fix="Write it like x=1,3,224,224, or 1,3,224,224"
            ) from error
        if any(dimension < 1 for dimension in shape):
            raise UsageError(
                f"--input-shape '{text}' has a dimension below 1", fix="Give every dimension a size"
            )
        if name in by_name:
            raise UsageError(
                f"--input-shape is given twice for {f'input {name!r}' if separator else 'the input'}"
            )
        by_name[name] = shape
    return by_name


def preprocess_by_input(flags: Mapping[str, Sequence[str]]) -> dict[str, Preprocess]:
    """Preprocessing flags, each with an optional `input:` before its value, as one `Preprocess` an input.

    The keys of `flags` are fields of `Preprocess`; a value without a name is for every input that has any flag with
    a name, or for the only input.
    """
    named: dict[str, dict[str, Any]] = {}
    common: dict[str, Any] = {}
    for field, texts in flags.items():
        for text in texts:
            name, separator, value = text.rpartition(":")
            parsed = _PARSERS[field](value, _FLAGS[field])
            own = named.setdefault(name, {}) if separator else common
            if field in own:
                whose = f"input '{name}'" if separator else "all inputs"
                raise UsageError(f"{_FLAGS[field]} is given twice for {whose}", fix="Give it once")
            own[field] = parsed
    if not named:
        return {ANY_INPUT: _preprocess(common)} if common else {}
    return {name: _preprocess(common | values) for name, values in named.items()}


def _preprocess(fields: Mapping[str, Any]) -> Preprocess:
    """Fields that came from flags; an error has the name of the flag."""
    from npuc.images.preprocess import Preprocess

    try:
        return Preprocess.from_dict(fields)
    except PreprocessError as error:
        field, colon, words = error.message.partition(": ")
        fix = (
            "Give one value, or one for each channel of --pixel-format" if field in _BY_CHANNEL else error.fix
        )
        raise PreprocessError(f"{_FLAGS.get(field, field)}{colon}{words}", fix=fix) from error


def preprocess_fields(flags: Mapping[str, str]) -> dict[str, Any]:
    """Preprocessing flags as fields of `Preprocess`, for every input that takes an image."""
    return {field: _PARSERS[field](text, _FLAGS[field]) for field, text in flags.items()}


def import_options(
    path: Path,
    input_shapes: Iterable[str],
    inputs: str | None,
    outputs: str | None,
    flags: Mapping[str, Sequence[str]],
    weights: Path | None = None,
    constant: Sequence[str] = (),
    postprocess: str | None = None,
) -> ImportOptions:
    """The importer's options; what is meant for the only input gets its name from the file."""
    from npuc.frontend.formats import foreign
    from npuc.frontend.options import ImportOptions

    by_name = shapes(input_shapes)
    if any(flags.values()) and not flags.get("layout"):
        flags = {**flags, "layout": [foreign(path)[1].layout]}
    preprocess = preprocess_by_input(flags)
    cut = names(inputs)
    if ANY_INPUT in by_name or ANY_INPUT in preprocess:
        only = _only_input(path, cut, ImportOptions(weights=weights, constants=constants(constant)))
        by_name = {name or only: shape for name, shape in by_name.items()}
        preprocess = {name or only: value for name, value in preprocess.items()}
    return ImportOptions(
        input_shapes=by_name,
        inputs=cut,
        outputs=names(outputs),
        weights=weights,
        constants=constants(constant),
        preprocess=preprocess,
        postprocess=postprocess or "",
    )


def tell_import(printer: Printer, graph: Graph) -> None:
    """Print what the importer decided by itself, such as the size of an open batch."""
    for note in graph.notes:
        printer.note(note)


def imported_as(
    model: Path,
    input_shape: Sequence[str] | None,
    weights: Path | None = None,
    postprocess: str | None = None,
    inputs: str | None = None,
    outputs: str | None = None,
    preprocessing: PreprocessingOptions | None = None,
) -> ImportOptions | None:
    """How a command that takes any model imports a foreign one; None if nothing is asked for.

    An .mlir file has its shapes and weights: to ask for others is an error, not a wish that is passed over.
    """
    fields = preprocessing.fields() if preprocessing is not None else {}
    preprocessed = {field: texts for field, texts in fields.items() if texts}
    ends = preprocessing.changes_ends if preprocessing is not None else {}
    if not (input_shape or weights or postprocess or inputs or outputs or preprocessed or any(ends.values())):
        return None
    from npuc.files import existing_model
    from npuc.frontend.sniff import describe_content

    import_flags = {
        "--input-shape": input_shape,
        "--weights": weights,
        "--inputs": inputs,
        "--outputs": outputs,
        **{_FLAGS[field]: texts for field, texts in preprocessed.items()},
        **ends,
    }
    unused = next((flag for flag, value in import_flags.items() if value), None)
    if unused is not None and describe_content(existing_model(model)).kind == "mlir":
        raise UsageError(
            f"{unused} is for models that are imported, and {model} is imported already",
            fix=f"Leave it out, or import the original again: npuc import ORIGINAL {unused} ... -o {model}",
        )
    imported = import_options(
        model, input_shape or [], inputs, outputs, preprocessed, weights, postprocess=postprocess
    )
    return imported if preprocessing is None else preprocessing.apply(imported)


def constants(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`, each once.

    >>> constants(["training=0"])
    {'training': '0'}
    """
    by_name: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(
                f"--constant '{text}' is not NAME=VALUE", fix="Write it like --constant training=0"
            )
        if name in by_name:
            raise UsageError(f"--constant is given twice for input '{name}'")
        by_name[name] = value
    return by_name


def _only_input(path: Path, cut: tuple[str, ...], given: ImportOptions) -> str:
    from npuc.flow import input_names

    names = cut or tuple(name for name in input_names(path, given) if name not in given.constants)
    if len(names) != 1:
        raise UsageError(
            f"the model has {counted(len(names), 'input')}, so an option has to say which one it is for",
            fix=f"Write NAME=SHAPE and NAME:VALUE; the inputs are {', '.join(names[:10])}",
        )
    return names[0]


def _pair(text: str, flag: str) -> tuple[int, int]:
    parts = text.split(",")
    try:
        height, width = (int(part) for part in (parts * 2 if len(parts) == 1 else parts))
    except ValueError as error:
        raise UsageError(
            f"{flag} '{text}' is not a height and a width", fix=f"Write it like {flag} 224,224"
        ) from error
    return height, width


def _floats(text: str, flag: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"{flag} '{text}' is not a list of numbers", fix=f"Write it like {flag} 123.7,116.3,103.5"
        ) from error


def _integer(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{flag} '{text}' is not a whole number") from error


def _word(text: str, flag: str) -> str:
    return text.strip().lower()


def _truth(text: str, flag: str) -> bool:
    return text != "no"


_PARSERS: dict[str, Any] = {
    "resize": _pair,
    "crop": _pair,
    "keep_aspect_ratio": _truth,
    "pad_value": _integer,
    "pad_type": _word,
    "mean": _floats,
    "scale": _floats,
    "pixel_format": _word,
    "layout": _word,
    "interpolation": _word,
    "standardize": _word,
    "source_size": _pair,
    "source_format": _word,
}

_BY_CHANNEL = ("mean", "scale")
_FLAGS = {field: f"--{field.replace('_', '-')}" for field in _PARSERS} | {
    "resize": "--resize-dims",
    "layout": "--channel-format",
}
