"""`aipuopt`: a float IR and calibration data become a quantized IR; metrics of both are computed on labelled data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.calibration import calibrate, check_statistics, resolve_overrides, table_from
from npuc.calib.collection import collect
from npuc.calib.ranges import observer_options
from npuc.calib.sources import Source, open_data, random_data
from npuc.calib.statistics import ObserverOptions, regrouped
from npuc.compat.arguments import VendorParser
from npuc.compat.compass.cfg import CfgSection, only_section
from npuc.compat.compass.checker_plugins import check_layers
from npuc.compat.compass.layers import ir_layers, require_ir
from npuc.compat.compass.logger import say
from npuc.compat.compass.opt_search import auto_search, ladder_of, learning_of, refuse_beside
from npuc.compat.compass.opt_settings import IGNORED, KEYS, OptSettings, settings_of
from npuc.compat.compass.optimizer_plugins import (
    as_tensor,
    check_operator_plugins,
    dataset_named,
    metric_named,
)
from npuc.compat.compass.plugin_files import load_plugins
from npuc.compat.compass.statistic_file import load_statistic_info, save_statistic_info
from npuc.compat.compass.targets import resolve_target
from npuc.compat.compass.template import write_template
from npuc.compat.compass.value_limits import value_limits
from npuc.debug.layers import layer_tensors
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import CalibrationDataError, NpucError, PluginError, UnsupportedOpError, UsageError
from npuc.export.compass import export_compass
from npuc.files import existing_file, make_folder, write_atomically
from npuc.flow import Quantized, network_to_quantize, quantize_network, quantize_on_data
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.prequantized import is_quantized
from npuc.target import Target

_METRIC = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(?:,|$)")


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = VendorParser("aipuopt", "Quantize a float IR.")
    parser.add("-c", "--cfg", required=True, metavar="CFG", help="the cfg file")
    options = parser.parse(arguments)
    section = only_section(options.cfg, "Optimizer")
    load_plugins()
    text = existing_file(section.required("graph"))
    weights = existing_file(section.text("bin")) if "bin" in section.values else None
    require_ir(text)
    check_layers(text)
    graph = network_to_quantize(text, ImportOptions(weights=weights))
    graph.name = section.text("model_name", graph.name)
    optimize(section, graph, resolve_target(section.text("min_compatible_zhouyi_target")))
    return 0


@dataclass(frozen=True)
class Optimized:
    """A quantized network, and the figures of its metrics."""

    quantized: Quantized
    float_figures: Mapping[str, float]
    figures: Mapping[str, float]
    text: Path | None
    """The quantized IR; None if a layer has no form there."""


def optimize(section: CfgSection, graph: Graph, target: Target) -> Optimized:
    """Quantize a network as a section says, and write what the optimizer leaves behind."""
    section.check_known(KEYS, IGNORED)
    _check(section)
    metrics = _metrics(section)
    folder = Path(section.text("output_dir", "./"))
    name = section.text("quant_ir_name", section.text("out_ir_name", section.text("model_name", graph.name)))
    graph = rewritten_for(graph, target, "float")
    if section.flag("resize_degrade_to_nearest"):
        graph = run_pipeline(graph, "nearest-resize")
    layers = ir_layers(graph)
    check_operator_plugins({layer.kind for layer in layers})
    settings = settings_of(section, graph, layers, target)
    samples = _samples(section, graph, "calibration_data")
    done = _quantized(section, graph, target, settings, samples)
    before, after = (
        _evaluate(section, graph, engine(network).run, metrics, what) if section.flag(key, True) else {}
        for key, engine, network, what in (
            ("eval_original_model", FloatEngine, graph, "float"),
            ("eval_optimized_model", IntegerEngine, done.graph, "quantized"),
        )
    )
    make_folder(folder)
    if section.flag("save_statistic_info") and samples is None:
        say("W", "save_statistic_info has no effect without a dataset: there are no statistics")
    if section.flag("save_statistic_info") and samples is not None:
        momentum = section.number("running_statistic_momentum", 0.9, 0.0, 0.999999)
        observed = ObserverOptions(momenta=tuple(sorted({0.9, 0.99, momentum})))
        statistics = collect(graph, open_data(graph, samples()), options=observed)
        bins = section.integer("histc_bins", 2048, 2, 1 << 16)
        save_statistic_info(statistics, folder / f"{graph.name}_statistic_info.npy", bins, momentum)
    text = write_quantized_ir(done, graph, folder / f"{name}.txt")
    write_template(done, section, folder / "opt_template.json")
    if section.flag("dump"):
        _dump(done, samples, Path(section.text("dump_dir", "./opt_dump")))
    say("I", f"{graph.name}: {done.outcome.counts()} layers; quantized IR: {text or 'not written'}")
    return Optimized(done, before, after, text)


def write_quantized_ir(done: Quantized, graph: Graph, path: Path) -> Path | None:
    """The quantized IR; a network of which a layer has no form there is told, and goes on."""
    done.source.name = graph.name
    try:
        return export_compass(done.source, path, integers=done.graph)[0]
    except UnsupportedOpError as error:
        say("W", f"no quantized IR is written: {error.message}")
        return None


def _check(section: CfgSection) -> None:
    """Values that are known to be wrong before anything is computed."""
    auto_search(section)
    if section.flag("enable_ds"):
        raise UsageError(
            "[Optimizer] enable_ds = true is not supported: programs have static shapes",
            where=section.path,
            fix="Parse and build the model once for each input_shape",
        )
    if section.values.get("unify_scales_for_concat", "").lower() == "false":
        say(
            "W",
            "unify_scales_for_concat = false has no effect here: operands of a concat always have one scale",
        )
    if "calibration_data" in section.values and "dataset" not in section.values:
        raise UsageError("[Optimizer] calibration_data needs a dataset", where=section.path)
    if "metric" in section.values:
        for key in ("dataset", "data", "label"):
            section.required(key)
    else:
        for key in ("data", "label", "metric_batch_size"):
            if key in section.values:
                say("W", f"{key} has no effect without a metric")
    if "dump_dir" in section.values and not section.flag("dump"):
        say("W", "dump_dir has no effect without dump = true")


def _quantized(
    section: CfgSection,
    graph: Graph,
    target: Target,
    settings: OptSettings,
    samples: Callable[[], Iterator[dict[str, Array]]] | None,
) -> Quantized:
    if is_quantized(graph):
        say(
            "W",
            "the network brings its own scales: calibration data and the settings of quantization have no effect",
        )
        return quantize_network(graph, None, None, target)
    method, limits = settings.method, value_limits(section, ir_layers(graph))
    ladder = ladder_of(section, partial(_first_figure, section, graph))
    config = settings.config.model_copy(update={"ladder": learning_of(section)})
    if ladder is not None:
        refuse_beside(section, settings.overrides)
    if "statistic_file" in section.values:
        for key in ("calibration_data", "trim_infinity_before_statistic", "calibration_batch_size"):
            if key in section.values and (
                key != "calibration_data" or not section.flag("save_statistic_info")
            ):
                say("W", f"{key} has no effect beside statistic_file, which has the ranges")
        statistics = load_statistic_info(section.text("statistic_file"))
        check_statistics(graph, statistics)
        overrides = resolve_overrides(graph, settings.overrides)
        table = table_from(statistics, method or "mean", overrides=overrides)
        return quantize_network(graph, table, settings.config, target)
    size = section.integer("calibration_batch_size", 1, 1, 1 << 16)
    if ladder is not None and size > 1:
        say("W", "calibration_batch_size has no effect beside a search: its steps see one sample at a time")
    if samples is None:
        say("W", "there is no calibration data: ranges come from random numbers, and accuracy means nothing")
        source: Source = random_data(graph)
    else:
        source = open_data(graph, samples())
    if limits is None and (size == 1 or ladder) and not settings.overrides:
        return quantize_on_data(graph, source, config, target, method, ladder=ladder)[0]
    chosen = method or "mean"
    options = observer_options([chosen, *settings.overrides.values()])
    statistics = regrouped(collect(graph, source, options=options, limits=limits), size)
    overrides = resolve_overrides(graph, settings.overrides)
    table = calibrate(graph, None, chosen, statistics=statistics, overrides=overrides)
    return quantize_network(graph, table, settings.config, target)


def _samples(section: CfgSection, graph: Graph, key: str) -> Callable[[], Iterator[dict[str, Array]]] | None:
    """What gives the samples of a data set, from the first on."""
    if "dataset" not in section.values:
        return None
    data = _dataset(section, key, None)
    return lambda: (inputs for inputs, _ in _entries(data, graph))


def _dataset(section: CfgSection, key: str, label: str | None) -> Any:
    cls = dataset_named(section.text("dataset"))
    try:
        return cls(section.text(key), label)
    except NpucError:
        raise
    except Exception as error:
        # The class may be the user's own: anything may happen in it.
        raise PluginError(f"the data set {cls.__name__} failed: {type(error).__name__}: {error}") from error


def _entries(data: Any, graph: Graph) -> Iterator[tuple[dict[str, Array], Any]]:
    """The samples of a data set by the names of the inputs, and their labels."""
    collate = getattr(data, "collate_fn", None)
    for index in range(len(data)):
        entry = data[index] if collate is None else collate([data[index]])
        try:
            inputs, label = entry
        except (TypeError, ValueError) as error:
            raise CalibrationDataError(f"sample {index} is not [[inputs...], label]") from error
        if len(inputs) != len(graph.inputs):
            raise CalibrationDataError(
                f"sample {index} has {len(inputs)} inputs, and the network {len(graph.inputs)}"
            )
        arrays = {}
        for port, value in zip(graph.inputs, inputs, strict=True):
            array = np.asarray(value)
            shape = shape_of(port.value)
            arrays[port.name] = array[None] if array.shape == shape[1:] and shape[0] == 1 else array
            if arrays[port.name].shape != shape:
                turned = sorted(array.shape[-3:]) == sorted(shape[-3:])
                raise CalibrationDataError(
                    f"sample {index} is {list(array.shape)}, and the input '{port.name}' is {list(shape)}",
                    fix="Choose a data set that turns the axes, such as NumpyNHWC2NCHWDataset"
                    if turned
                    else None,
                )
        yield arrays, label if collate is None else np.asarray(label)[0]


def _metrics(section: CfgSection) -> dict[str, Any]:
    """Metrics by their texts."""
    text = section.text("metric")
    chosen: dict[str, Any] = {}
    place = 0
    while place < len(text):
        match = _METRIC.match(text, place)
        if match is None:
            raise section.wrong("metric", "is no list such as TopKMetric(1),TopKMetric(5)")
        words = [word.strip() for word in re.split(r"[,;]", match[2] or "") if word.strip()]
        cls = metric_named(match[1])
        try:
            chosen[match[0].strip(" ,")] = cls(*words)
        except Exception as error:
            raise PluginError(f"the metric {match[1]} failed: {type(error).__name__}: {error}") from error
        place = match.end()
    return chosen


def _evaluate(
    section: CfgSection,
    graph: Graph,
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    metrics: Mapping[str, Any],
    what: str,
) -> dict[str, float]:
    """The figures of the metrics over the labelled data."""
    if not metrics:
        return {}
    _run_metrics(section, graph, run, metrics)
    figures = {name: float(metric.compute()) for name, metric in metrics.items()}
    for name, metric in metrics.items():
        say("I", f"{what} model, {name}: {metric.report()}")
        print(f"{what} {name}: {figures[name]:.6f}")
    return figures


def _first_figure(section: CfgSection, graph: Graph, network: Graph | None, count: int) -> float:
    """The first metric of an integer network, or of the float one, on the first samples."""
    run = FloatEngine(graph).run if network is None else IntegerEngine(network).run
    name, metric = next(iter(_metrics(section).items()))
    _run_metrics(section, graph, run, {name: metric}, count)
    return float(metric.compute())


def _run_metrics(
    section: CfgSection,
    graph: Graph,
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    metrics: Mapping[str, Any],
    count: int | None = None,
) -> None:
    """Give metrics the outputs for the labelled data, or for the first samples of it."""
    data = _dataset(section, "data", section.text("label"))
    for metric in metrics.values():
        metric.reset()
    for inputs, label in islice(_entries(data, graph), count):
        outputs = [as_tensor(np.asarray(array)) for array in run(inputs).values()]
        target = as_tensor(np.asarray(label)[None])
        for name, metric in metrics.items():
            try:
                metric(outputs, target)
            except NpucError:
                raise
            except Exception as error:
                raise PluginError(f"the metric {name} failed: {type(error).__name__}: {error}") from error


def _dump(done: Quantized, samples: Callable[[], Iterator[dict[str, Array]]] | None, folder: Path) -> None:
    """Every tensor of the first sample, as integers and as the reals that they stand for."""
    if samples is None:
        raise UsageError("dump = true needs a dataset and calibration_data")
    sample = next(samples(), None)
    if sample is None:
        raise CalibrationDataError("the data set is empty")
    make_folder(folder)
    names = []
    for number, tensor in enumerate(layer_tensors(IntegerEngine(done.graph), sample)):
        names.append(tensor.name)
        stem = re.sub(r"[^\w.-]", "_", tensor.name)[:150]
        with write_atomically(folder / f"{number:04d}_{stem}.npy") as out:
            np.save(out, tensor.values)
    with write_atomically(folder / "index.json") as out:
        out.write(json.dumps(names).encode())
