"""`vai_q_tensorflow`: frozen graphs of TensorFlow 1 quantized, looked at and dumped.

`quantize` writes npuc's integer network under the vendor's file names, `deploy_model.pb` and `quantize_eval_model.pb`: `dump` and
`vai_c_tensorflow` read them. `--output_format onnx` writes a QDQ file instead, for any other tool.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.compat.arguments import VendorParser, comma_list, keyword
from npuc.compat.vitis.dumps import DumpFolder
from npuc.compat.vitis.notices import near_names, note, refusal, without_effect
from npuc.compat.vitis.quantization import (
    dpu_scheme,
    dpu_settings,
    layers_outside,
    quantized_by,
    single_rows,
)
from npuc.compat.vitis.xmodels import open_xmodel
from npuc.debug.layers import layer_tensors
from npuc.engine import IntegerEngine
from npuc.errors import (
    CalibrationDataError,
    DynamicShapeError,
    FileFormatError,
    UnknownTensorError,
    UnsupportedTypeError,
    UsageError,
)
from npuc.export.qdq import export_quantized_onnx
from npuc.files import existing_model, make_folder
from npuc.flow import Quantized, network_to_quantize, quantize_network
from npuc.frontend.formats import declared_inputs, import_foreign
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, result_names, save_graph, shape_of, top
from npuc.quant.config import QuantizationConfig
from npuc.quant.scheme import Scheme
from npuc.target import Target

__version__ = "3.5.0"
_METHODS: dict[str, str | None] = {"0": "max", "1": None, "2": None}
"""Method 1 leaves npuc to hold the ranges of least squared error against those that clip nothing."""
_ALIGNED_CONCATS = {"0": "all", "1": "outputs", "2": "none"}
_OWN_FACTORS = (3, 5, 6, 7, 14)
"""Square windows that --scale_all_avgpool does not speak of."""
_DATATYPES = {"1": "f16", "3": "bf16", "4": "f32"}
_COMMANDS = ("quantize", "inspect", "dump")


def main(arguments: list[str]) -> int:
    """`vai_q_tensorflow`."""
    if arguments[:1] in (["--version"], ["-v"]):
        print(f"vai_q_tensorflow {__version__} (npuc)")
        return 0
    if arguments[:1] in (["--help"], ["-h"]):
        print(f"usage: vai_q_tensorflow {{{','.join(_COMMANDS)}}} [options]; each has --help")
        return 0
    if not arguments or arguments[0] not in _COMMANDS:
        raise UsageError(
            f"vai_q_tensorflow needs a command{f', not {arguments[0]!r}' if arguments else ''}",
            fix=f"There are: {', '.join(_COMMANDS)}",
        )
    return {"quantize": _quantize, "inspect": _inspect, "dump": _dump}[arguments[0]](arguments[1:])


def _quantize(arguments: list[str]) -> int:
    given = _quantize_parser().parse(arguments)
    path = existing_model(given.input_frozen_graph)
    graph = _network(path, given.input_nodes, _shapes(given.input_shapes, given.input_nodes))
    scheme = _scheme(given)
    averages = () if given.scale_all_avgpool == "1" else _averages_of_other_sizes(graph)
    if scheme == dpu_scheme() and not given.nodes_bit and not averages:
        config, target = dpu_settings()
    else:  # another arithmetic than the DPU's
        config, target = QuantizationConfig(scheme=scheme), None
    config = config.model_copy(update={"activation_forms": _forms(given)})
    if not isinstance(scheme, str):
        config = config.with_options({"aligned_concats": _ALIGNED_CONCATS[given.align_concat]})
        config = config.with_layers(averages, {"exact_averages": True})
    if given.adjust_shift_bias != "1":
        without_effect(
            "--adjust_shift_bias",
            "a bias of 8 bits is shifted to the left alone, which every strategy allows",
        )
    floats = {*layers_outside(graph, _known(graph, given.input_nodes), _known(graph, given.output_nodes))}
    config = config.with_layers((*floats, *_known(graph, given.ignore_nodes)), "float")
    for name, bits in _pairs(given.nodes_bit, "nodes_bit").items():
        config = config.with_layers(
            _known(graph, [name]), {"weight": f"i{bits}", "activation": f"i{max(int(bits), 8)}"}
        )
    done = (
        quantize_network(graph, {}, config)
        if isinstance(scheme, str)
        else _on_data(graph, given, config, target)
    )
    folder = make_folder(Path(given.output_dir))
    if given.output_format == "onnx":
        export_quantized_onnx(done.graph, folder / "quantize_eval_model.onnx")
        print(f"quantize_eval_model : {folder / 'quantize_eval_model.onnx'}")
        return 0
    for name in ("deploy_model", "quantize_eval_model"):
        save_graph(done.graph, folder / f"{name}.pb")
        print(f"{name} : {folder / name}.pb")
    print(f"{done.outcome.counts()}", file=sys.stderr)
    return 0


def _quantize_parser() -> VendorParser:
    parser = VendorParser("vai_q_tensorflow quantize", "Quantize a frozen graph.")
    parser.add("--input_frozen_graph", required=True, help="The frozen graph (.pb).")
    parser.add("--input_nodes", required=True, type=comma_list, help="Where quantization begins.")
    parser.add("--output_nodes", required=True, type=comma_list, help="Where it ends.")
    parser.add("--input_shapes", required=True, help="Of the input nodes: ?,224,224,3, with ':' between.")
    parser.add("--input_fn", help="MODULE.FUNCTION, which gives the data of a step.")
    parser.add("--calib_iter", type=int, default=100, help="Steps of calibration.")
    parser.add("--weight_bit", type=int, default=8, help="Bits of weights and biases.")
    parser.add("--activation_bit", type=int, default=8, help="Bits of activations.")
    parser.add("--nodes_bit", default="", help="Bits of single nodes: name:bits,...")
    parser.add(
        "--method", default="1", choices=("0", "1", "2"), help="0: no overflow; 1, 2: least difference."
    )
    parser.add("--nodes_method", default="", help="Of single nodes: name:method,...")
    parser.add("--ignore_nodes", type=comma_list, default=[], help="Nodes that stay float.")
    parser.add("--arch_type", type=keyword("DEFAULT", "DPUCADF8H"), default="DEFAULT", help="The DPU.")
    parser.add("--output_dir", default="./quantize_results", help="Where results are written.")
    parser.add("--output_format", type=keyword("pb", "onnx"), default="pb", help="The form of the result.")
    parser.add("--do_cle", default="0", choices=("0", "1"), help="Equalize; npuc does where it gains.")
    parser.add("--replace_relu6", default="1", choices=("0", "1"), help="With do_cle: relu6 becomes relu.")
    parser.add("--replace_sigmoid", default="0", choices=("0", "1"), help="1: sigmoid becomes hard.")
    parser.add(
        "--convert_datatype", default="0", choices=("0", "1", "2", "3", "4"), help="1 f16, 3 bf16, 4 f32."
    )
    parser.add_refused(
        "--replace_softmax",
        "hard softmax is one DPU's own approximation in bf16, and no machine here has it",
        unless="0",
    )
    parser.add_refused(
        "--align_pool",
        "a max pool chooses elements of its operand, so they share a scale; another one would only round or clip them again",
        unless="0",
    )
    parser.add(
        "--align_concat",
        default="0",
        choices=tuple(_ALIGNED_CONCATS),
        help="Concats whose operands are made in its position: 0 all, 1 outputs, 2 none.",
    )
    parser.add(
        "--simulate_dpu",
        default="1",
        choices=("0", "1"),
        help="0: averages divide exactly, not as the DPU does.",
    )
    parser.add(
        "--scale_all_avgpool",
        default="1",
        choices=("0", "1"),
        help="0: of averages, only windows of 3, 5, 6, 7 and 14 divide as the DPU does.",
    )
    parser.add(
        "--adjust_shift_bias",
        default="1",
        choices=("0", "1", "2"),
        help="Positions of biases are always in range.",
    )
    parser.add(
        "--adjust_shift_cut",
        default="1",
        choices=("0", "1"),
        help="0: positions that no shift of the DPU reaches stay.",
    )
    for name in ("--skip_check", "--gpu", "--gpu_memory_fraction", "--max_dump_batches", "--dump_float"):
        parser.add_ignored(name, "it is not for quantizing, or not needed")
    return parser


def _scheme(given: Any) -> str | dict[str, Any]:
    if given.convert_datatype == "2":
        raise UsageError("--convert_datatype 2: npuc has no double precision", fix="Take 4, which is float32")
    if given.convert_datatype != "0":
        return _DATATYPES[given.convert_datatype]
    changes: dict[str, Any] = {}
    for bits, name in ((given.weight_bit, "weight"), (given.activation_bit, "activation")):
        if not (2 if name == "weight" else 8) <= bits <= 16:
            raise UsageError(
                f"--{name}_bit {bits} is out of range",
                fix="Give 8; weights may have 2 to 16, activations 8 to 16",
            )
        changes[name] = f"i{bits}"
    if max(given.weight_bit, given.activation_bit) > 8:
        changes |= {"wide_sum_bits": 48, "wide_bias_bits": 48, "bias_significant_bits": 0}
    if given.simulate_dpu == "0":
        changes["exact_averages"] = True
    if given.adjust_shift_cut == "0":
        widest = Scheme()
        changes |= {"min_shift": widest.min_shift, "max_shift": widest.max_shift}
    if given.arch_type == "DPUCADF8H":
        changes["narrow_activations"] = True
    return dpu_scheme(**changes)


def _averages_of_other_sizes(graph: Graph) -> tuple[str, ...]:
    """The averages whose windows the DPU has no factor of its own for, and divides by scaling."""
    return tuple(
        result_names(op)[0]
        for op in graph.ops
        if isinstance(op, top.AvgPool) and not (len(set(op.kernel)) == 1 and op.kernel[0] in _OWN_FACTORS)
    )


def _forms(given: Any) -> tuple[str, ...] | None:
    forms = ["relu6-to-relu"] if given.do_cle == "1" and given.replace_relu6 == "1" else []
    forms += ["hard-sigmoid"] if given.replace_sigmoid == "1" else []
    return tuple(forms) or None


def _on_data(graph: Graph, given: Any, config: QuantizationConfig, target: Target | None) -> Quantized:
    if not given.input_fn:
        raise UsageError("--input_fn is missing: it gives the calibration data", fix="Give MODULE.FUNCTION")
    samples = single_rows(graph, _steps(given.input_fn, given.calib_iter))
    methods = _pairs(given.nodes_method, "nodes_method")
    if methods:
        overrides = {
            _known(graph, [name])[0]: _METHODS.get(method) or "mse" for name, method in methods.items()
        }
        table = calibrate(
            graph, open_data(graph, samples), _METHODS[given.method] or "mse", overrides=overrides
        )
        return quantize_network(graph, table, config, target)
    return quantized_by(graph, samples, config, target=target, method=_METHODS[given.method], warn=note)


def _steps(text: str, count: int) -> Iterator[Mapping[str, Array]]:
    """What an input function gives for each step."""
    function = _function(text)
    for step in range(count):
        batch = function(step)
        if not isinstance(batch, Mapping):
            raise CalibrationDataError(
                f"{text}({step}) gives a {type(batch).__name__}, and has to give a dictionary"
            )
        yield {str(name).removesuffix(":0"): value for name, value in batch.items()}


def _function(text: str) -> Callable[[int], Any]:
    module, _, name = text.rpartition(".")
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        # The module is the user's own: anything may happen in it.
        raise refusal(
            "QUANTIZER_TF1_INVALID_INPUT_FN",
            f"--input_fn {text} cannot be imported: {error}",
            "Give MODULE.FUNCTION",
        ) from error
    finally:
        sys.path.remove("")
    if not callable(function):
        raise refusal("QUANTIZER_TF1_INVALID_INPUT_FN", f"--input_fn {text} is no function")
    checked: Callable[[int], Any] = function
    return checked


def _shapes(text: str, nodes: list[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the input nodes."""
    groups = [comma_list(part) for part in text.split(":")]
    if len(groups) != len(nodes) or not all(groups):
        raise refusal(
            "QUANTIZER_TF1_LENGTH_MISMATCH",
            f"--input_shapes {text} has to state a shape for each of {len(nodes)} input nodes",
            "Such as ?,224,224,3, with ':' between several",
        )
    try:
        shapes = [tuple(1 if size in ("?", "-1") else int(size) for size in group) for group in groups]
    except ValueError:
        raise UsageError(f"--input_shapes {text}: sizes are numbers or ?") from None
    return dict(zip(nodes, shapes, strict=True))


def _network(path: Path, nodes: list[str], shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """The graph with the shapes of its inputs; one that begins with text or files begins at the input nodes."""
    inputs = declared_inputs(path, ImportOptions())
    known = {name: shape for name, shape in shapes.items() if name in inputs}
    try:
        return network_to_quantize(path, ImportOptions(input_shapes=known))
    except UnsupportedTypeError:
        return network_to_quantize(path, ImportOptions(input_shapes=dict(shapes), inputs=tuple(nodes)))


def _known(graph: Graph, names: list[str]) -> tuple[str, ...]:
    """The tensors that nodes of the original make."""
    tensors = []
    for name in names:
        tensor = graph.tensor_called(name.removesuffix(":0"))
        if graph.find(tensor) is None:
            known = [*(port.name for port in graph.inputs), *graph.tensor_names()]
            raise UnknownTensorError(
                f"the graph has no node '{name}' after folding", fix=near_names(name, known)
            )
        tensors.append(tensor)
    return tuple(tensors)


def _pairs(text: str, option: str) -> dict[str, str]:
    pairs = {}
    for word in comma_list(text):
        name, _, value = word.rpartition(":")
        if not name or not value.isdigit():
            raise UsageError(f"--{option} {word} is not NAME:NUMBER")
        pairs[name] = value
    return pairs


def _inspect(arguments: list[str]) -> int:
    parser = VendorParser(
        "vai_q_tensorflow inspect", "Estimate the input and output nodes of a frozen graph."
    )
    parser.add("--input_frozen_graph", required=True, help="The frozen graph (.pb).")
    path = existing_model(parser.parse(arguments).input_frozen_graph)
    try:
        graph = import_foreign(path, ImportOptions())
    except (DynamicShapeError, UnsupportedTypeError) as error:
        for name, kind in declared_inputs(path, ImportOptions()).items():
            print(f"Found input node: (name={name}, type={kind})")
        print(f"{error.message}. {error.fix or ''}")
        return 0
    print(f"Op number: {sum(1 for _ in graph.ops)}")
    for port in graph.inputs:
        print(f"Found input node: (name={port.name}, shape={list(shape_of(port.value))})")
    for port in graph.outputs:
        print(f"Found output node: (name={port.name}, shape={list(shape_of(port.value))})")
    return 0


def _dump(arguments: list[str]) -> int:
    parser = VendorParser("vai_q_tensorflow dump", "Write all tensors of a quantized graph.")
    parser.add("--input_frozen_graph", required=True, help="quantize_eval_model.pb of vai_q_tensorflow.")
    parser.add("--input_fn", required=True, help="MODULE.FUNCTION, which gives the data of a step.")
    parser.add("--max_dump_batches", type=int, default=1, help="Steps to dump.")
    parser.add("--dump_float", default="0", choices=("0", "1"), help="1: float tensors, too.")
    parser.add("--output_dir", default="./quantize_results", help="Where the folders are made.")
    for name in ("--dump_input_tensors", "--gpu", "--gpu_memory_fraction"):
        parser.add_ignored(name, "inputs are always dumped, on the CPU")
    given = parser.parse(arguments)
    try:
        graph = open_xmodel(given.input_frozen_graph)
    except FileFormatError as error:
        raise FileFormatError(
            "is no graph that vai_q_tensorflow quantized",
            where=given.input_frozen_graph,
            fix="Give the quantize_eval_model.pb that 'vai_q_tensorflow quantize' wrote",
        ) from error
    if not isinstance(graph, Graph):
        raise FileFormatError("is compiled, and not quantized", where=given.input_frozen_graph)
    engine = IntegerEngine(graph)
    for number, batch in enumerate(_steps(given.input_fn, given.max_dump_batches)):
        folder = DumpFolder(Path(given.output_dir) / f"dump_results_{number}")
        sample = next(single_rows(graph, [batch]))
        for tensor in layer_tensors(engine, sample):
            if tensor.scale:
                folder.write(
                    f"{tensor.name}_int8" if tensor.kind != "input" else f"{tensor.name}_aquant",
                    tensor.values,
                )
            elif given.dump_float == "1":
                folder.write(tensor.name, tensor.values)
        print(f"dumped to {folder.folder}")
    return 0
