"""`run_calibration.py`: the threshold, minimum and maximum of every op of an .mlir file on typical data.

The threshold is that of the least Kullback-Leibler divergence, then tuned: of ten thresholds from there to the largest magnitude,
the one with the least error at the outputs of the ops that read the tensor. The extremes are those that were seen.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from npuc.arrays import Array
from npuc.calib.calibration import table_from
from npuc.calib.collection import collect
from npuc.calib.keeping import Keeper
from npuc.calib.ranges import observer_options
from npuc.calib.ranges.choice import steps_to_maximum
from npuc.calib.several import open_places
from npuc.calib.sources import DataOptions, Source
from npuc.calib.statistics import Statistics
from npuc.calib.table import CalibrationTable, Entry
from npuc.compat.arguments import VendorParser, comma_list, keyword
from npuc.compat.running import warn
from npuc.compat.tpumlir.chips import chip_named
from npuc.compat.tpumlir.names import names_of
from npuc.compat.tpumlir.ranges import int8_config, scales_of_maxima
from npuc.compat.tpumlir.tables import format_calibration, write_text
from npuc.errors import UsageError
from npuc.files import writable
from npuc.flow import network_to_quantize, quantize_network
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.config import QuantizationConfig
from npuc.quant.output_aware import output_aware_entries
from npuc.quant.output_similarity import OutputSimilarity, best_table
from npuc.quant.validation import Program
from npuc.target import Target

_CANDIDATES = 10
_BINS = 2048
_STEP = 128
"""Bins by which thresholds of use_kl differ."""
_METHODS = {
    "use_kl": "kl",
    "use_mse": "mse",
    "use_max": "max",
    "use_percentile9999": "percentile:ratio=0.9999",
    "percentile9999": "percentile:ratio=0.9999",
    "use_torch_observer_for_cali": "mse",
    "use_aciq_gauss": "aciq:distribution=gauss",
    "use_aciq_laplace": "aciq:distribution=laplace",
}
"""By the words of --cali_method and --debug_cmd; torch's histogram observer takes the range of least squared error."""


_TRIED = ("use_kl", "use_max", "use_percentile9999", "use_mse")
"""What search_threshold chooses among."""

_OF_THE_SEARCH = ("expected_cos", "min_layer_cos", "max_float_layers", "fp_type", "quantize_table")
"""Options that run_qtable.py has, too."""


def data_options(own: VendorParser) -> None:
    """The options that say what the samples are."""
    own.add("mlir_file", help="the .mlir file of model_transform.py")
    own.add("--dataset", help="a folder of images, .npy or .npz files")
    own.add(
        "--data_list",
        help="a text file, a sample a line: files of its inputs between commas, or one .npz file",
    )
    own.add("--input_num", type=int, default=0, help="samples to use; 0 means all")


def samples_of(graph: Graph, options: Namespace, command: str) -> Source:
    """The samples that the options name."""
    if bool(options.dataset) == bool(options.data_list):
        both = "contradict each other" if options.dataset else "are both missing"
        raise UsageError(f"--dataset and --data_list {both}", where=command, fix="Give one of them")
    if options.input_num < 0:
        raise UsageError(f"--input_num {options.input_num} is below 0", where=command)
    limit = DataOptions(max_count=options.input_num or None)
    return open_places(graph, [options.dataset or options.data_list], limit)


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("run_calibration.py", "Find the range of every op on typical data.")
    data_options(own)
    own.add("--tune_num", type=int, default=10, help="samples to tune thresholds with; 0 tunes nothing")
    own.add("--tune_list", help="a data list of samples to tune with")
    own.add("--histogram_bin_num", type=int, default=_BINS)
    own.add("--cali_method", type=keyword(*_METHODS), default="use_kl")
    own.add(
        "--debug_cmd",
        type=comma_list,
        default=[],
        help="percentile9999, use_max or use_torch_observer_for_cali",
    )
    own.add("-o", "--calibration_table", required=True, help="the table to write")
    own.add_ignored("--debug_log", "npuc -v logs what the stages do", action="store_true")
    own.add(
        "--search",
        type=keyword("False", "search_qtable", "search_threshold"),
        default="False",
        help="search_threshold takes the method whose INT8 network has the outputs nearest to the float one's; search_qtable "
        "goes on as run_qtable.py, with the options below",
    )
    own.add("--chip", "--processor", dest="chip", help="the chip of a search; ranges do not depend on it")
    own.add(
        "--inference_num", type=int, default=30, help="samples that search_threshold compares networks on"
    )
    own.add(
        "--benchmark_method", type=keyword("cos", "snr"), default="cos", help="the figure of search_threshold"
    )
    own.add(
        "--post_process",
        "--postprocess",
        help="of a search: a Python file with a function PostProcess, see run_qtable.py",
    )
    for name in _OF_THE_SEARCH:
        own.add(f"--{name}", help="of search_qtable: see run_qtable.py")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    search = _search(options)
    writable(options.calibration_table)
    if options.histogram_bin_num < _STEP:
        raise UsageError(
            f"--histogram_bin_num {options.histogram_bin_num} is below {_STEP}", where="run_calibration.py"
        )
    graph = network_to_quantize(options.mlir_file)
    source = samples_of(graph, options, "run_calibration.py")
    methods = _methods(options)
    tunes = any(method.startswith("kl") for method in methods.values())
    if options.tune_list is not None and (options.tune_num <= 0 or not tunes):
        warn(
            "run_calibration.py: --tune_list has no effect: only thresholds of use_kl are tuned, by --tune_num samples"
        )
    if options.histogram_bin_num != _BINS and not tunes:
        warn("run_calibration.py: --histogram_bin_num has no effect: it is for use_kl")
    chosen = _Threshold.of(graph, options) if options.search == "search_threshold" else None
    threads = len(os.sched_getaffinity(0))
    kept = Keeper(graph, source, max(options.tune_num, chosen.count if chosen else 1, 1))
    statistics = collect(
        graph,
        source,
        options=observer_options(list(methods.values())),
        threads=threads,
        warn=warn,
        seen=kept.keep,
    )
    samples = list(kept.first)[: max(options.tune_num, 0)] if tunes else []
    if samples and options.tune_list is not None:
        others = open_places(graph, [options.tune_list], DataOptions(max_count=options.tune_num))
        own = Keeper(graph, others, options.tune_num)
        collect(graph, others, threads=threads, warn=warn, seen=own.keep)
        samples = list(own.first)
    tables = {
        word: _thresholds(graph, statistics, method, samples if method.startswith("kl") else [], threads)
        for word, method in methods.items()
    }
    best = next(iter(tables))
    if chosen is not None:
        best = chosen.best(tables, list(kept.first)[: chosen.count], threads)
    names = names_of(graph)
    entries = [
        Entry(names.vendor_name(name), entry.threshold, statistics[name].min, statistics[name].max)
        for name, entry in tables[best].items()
    ]
    text = format_calibration(
        CalibrationTable.of(entries), options.histogram_bin_num, statistics.samples, len(samples)
    )
    write_text(options.calibration_table, text)
    print(
        f"{len(entries)} ops, {statistics.samples} samples, {len(samples)} to tune: {options.calibration_table}"
    )
    if not search:
        return 0
    from npuc.compat.tpumlir.qtable_command import main as run_qtable

    return run_qtable(search)


def _thresholds(
    graph: Graph, statistics: Statistics, method: str, samples: Sequence[Mapping[str, Array]], threads: int
) -> CalibrationTable:
    """The ranges of a method, tuned on the samples."""
    table = table_from(statistics, method)
    if not samples:
        return table
    schemes = QuantizationConfig(scheme="int8-symmetric").resolve(graph)
    propose = partial(steps_to_maximum, name=method, count=_CANDIDATES)
    tuned = output_aware_entries(graph, statistics, list(samples), schemes, threads, propose)
    entries = [
        replace(entry, threshold=tuned[name].threshold) if name in tuned else entry
        for name, entry in table.items()
    ]
    return CalibrationTable.of(entries)


@dataclass(frozen=True)
class _Threshold:
    """`--search search_threshold`: of several methods, that whose INT8 network has the outputs nearest to the float network's."""

    graph: Graph
    target: Target
    by: str
    count: int
    """How many samples the networks are compared on."""
    behind: Program | None

    @staticmethod
    def of(graph: Graph, options: Namespace) -> _Threshold:
        """As the options say."""
        from npuc.compat.tpumlir.qtable_command import postprocess_of

        target = chip_named(options.chip or "bm1684x", "run_calibration.py")
        return _Threshold(
            graph,
            target,
            "cosine" if options.benchmark_method == "cos" else "snr",
            options.inference_num,
            postprocess_of(options.post_process, names_of(graph), "--post_process"),
        )

    def best(
        self, tables: Mapping[str, CalibrationTable], samples: Sequence[Mapping[str, Array]], threads: int
    ) -> str:
        """The word of the best method; the figures of all are printed."""
        graph = rewritten_for(self.graph, self.target, "float")

        def integers(table: CalibrationTable) -> Graph:
            scales = scales_of_maxima(graph, self.target)
            return quantize_network(graph, table, int8_config(self.target), self.target, scales).graph

        similarity = OutputSimilarity(graph, samples, self.behind, threads)
        best, figures = best_table(tables, integers, similarity, "cosine" if self.by == "cosine" else "snr")
        for word, figure in figures.items():
            mark = " (chosen)" if word == best else ""
            print(
                f"{word.removeprefix('use_')}: cos {figure.cosine:.6f}, of the worst output {figure.least_cosine:.6f}, "
                f"snr {figure.snr:.6f}{mark}"
            )
        return best


def _search(options: Namespace) -> list[str]:
    """The command line of run_qtable.py that a search stands for; empty if there is none."""
    stated = {name: value for name in _OF_THE_SEARCH if (value := getattr(options, name)) is not None}
    if options.inference_num < 1:
        raise UsageError(
            f"--inference_num {options.inference_num} leaves nothing to compare", where="run_calibration.py"
        )
    if options.search == "False":
        if options.post_process:
            raise UsageError("--post_process is for --search", where="run_calibration.py")
        if stated:
            raise UsageError(
                f"--{next(iter(stated))} is for --search search_qtable", where="run_calibration.py"
            )
        return []
    if options.search == "search_threshold":
        for name in stated:
            warn(f"run_calibration.py: --{name} has no effect: it is for --search search_qtable")
        return []
    if not options.chip or not options.quantize_table:
        raise UsageError(
            "--search search_qtable needs --chip and --quantize_table", where="run_calibration.py"
        )
    data = ["--dataset", options.dataset] if options.dataset else ["--data_list", options.data_list]
    own = [options.mlir_file, *data, "--input_num", str(options.input_num), "--chip", options.chip]
    own += ["--calibration_table", options.calibration_table]
    if options.post_process:
        own += ["--postprocess", options.post_process]
    return own + [word for name, value in stated.items() for word in (f"--{name}", value)]


def _methods(options: Namespace) -> dict[str, str]:
    """The range methods to try, by TPU-MLIR's words."""
    if options.search != "search_threshold":
        return {options.cali_method: _method(options)}
    if options.debug_cmd:
        warn("run_calibration.py: --debug_cmd has no effect: search_threshold chooses among the methods")
    histogram = f"kl:bins={options.histogram_bin_num},step={_STEP}"
    return {word: histogram if word == "use_kl" else _METHODS[word] for word in _TRIED}


def _method(options: Namespace) -> str:
    """The range method that the options ask for."""
    chosen = {_METHODS[word] for word in options.debug_cmd if word in _METHODS}
    for word in options.debug_cmd:
        if word not in _METHODS:
            warn(f"run_calibration.py does not know the debug command '{word}': passed over")
    if len(chosen) > 1:
        raise UsageError(f"--debug_cmd {','.join(options.debug_cmd)} names several ways to find a threshold")
    method = next(iter(chosen), _METHODS[options.cali_method])
    return f"kl:bins={options.histogram_bin_num},step={_STEP}" if method == "kl" else method
