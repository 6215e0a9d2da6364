"""Every line that `inspect`, `quantize` and `compile` print about placement and accuracy, checked against the compiled program.

Each line has a form here with a check of its numbers and names; a line without one fails, so that no sentence comes unchecked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from npuc.arrays import Array
from npuc.cli.console import shorten, size
from npuc.compare import LOST, find_slices
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import load_model, save_graph
from npuc.ir import Graph, npu, result_names, shape_of, top
from npuc.ir.dtypes import quant_of
from npuc.profile.occupancy import local_peak
from npuc.profile.timeline import profile_of
from npuc.program.file import load_compiled
from npuc.program.model import CompiledModel, CpuSubgraph, HostConversion, NpuSubgraph
from npuc.quant.report import weight_bytes
from npuc.sim import Simulator, simulate
from npuc.target import Target, load_target
from support.networks.backend import machine
from support.networks.placement import NETWORKS

Check = Callable[["Made", re.Match[str]], None]


@dataclass
class Made:
    """What a command line made, to look things up in."""

    source: Graph
    integers: Graph
    """As `compile --dump-ir` or `quantize` wrote it."""
    model: CompiledModel | None
    file: Path
    at: str = ""
    """The subgraph that lines below it are about."""
    samples: Array | None = None
    """What it was calibrated on."""

    @cached_property
    def program(self) -> CompiledModel:
        assert self.model is not None
        return self.model

    def subgraph(self, name: str) -> Any:
        self.at = name
        [found] = [one for one in self.program.subgraphs if one.name == name]
        return found

    @cached_property
    def on_cpu(self) -> dict[str, str]:
        """The ops of the CPU with their reasons, as the file has them."""
        parts = [one for one in self.program.subgraphs if isinstance(one, CpuSubgraph)]
        return {name: reason for part in parts for name, reason in part.reasons.items()}

    @cached_property
    def timing(self) -> Any:
        return profile_of(self.program, simulate(self.program))

    @cached_property
    def decibels(self) -> tuple[dict[str, float], dict[str, float]]:
        """Of every slice of the outputs over all samples, and in its worst sample: what the program gives against float."""
        assert self.samples is not None
        name = self.source.inputs[0].name
        floats = FloatEngine(self.source, threads=1)
        runs = Simulator(self.model) if self.model is not None else IntegerEngine(self.integers)
        inputs = [{name: sample[None]} for sample in self.samples]
        wanted, got = [floats.run(one) for one in inputs], [runs.run(one) for one in inputs]
        whole, worst = {}, {}
        for output, slices in find_slices(self.source, wanted).items():
            for one in slices:
                pairs = [
                    (one.of(a[output]).astype(float), one.of(b[output]))
                    for a, b in zip(wanted, got, strict=True)
                ]
                signal = np.array([(a**2).sum() for a, _ in pairs])
                error = np.array([((a - b) ** 2).sum() for a, b in pairs])
                whole[str(one)] = 10 * np.log10(signal.sum() / error.sum())
                # A sample that has next to no signal in the slice counts as a tenth of the mean.
                alone = np.maximum(signal, signal.mean() / 10) / error
                worst[str(one)] = 10 * np.log10(alone.min())
        return whole, worst

    @cached_property
    def makers(self) -> dict[str, Any]:
        """The ops of the integer network by the names of their results; what computes, rather than what converts."""
        found: dict[str, Any] = {}
        for op in self.integers.ops:
            for name in result_names(op):
                if name not in found or isinstance(found[name], npu.Quantize | npu.Dequantize):
                    found[name] = op
        return found

    def is_integer(self, name: str) -> bool:
        op = self.makers[name]
        return any(quant_of(value) is not None for value in (*op.operands, *op.results))


def _lines(text: str, forms: Mapping[str, Check], made: Made) -> Counter[str]:
    """Check every line; how many had each form."""
    seen: Counter[str] = Counter()
    for line in text.splitlines():
        for form, check in forms.items():
            if match := re.fullmatch(form, line):
                check(made, match)
                seen[form] += 1
                break
        else:
            assert not line.strip(), f"a line without a check: {line!r}"
    return seen


def _no_wide(made: Made, match: re.Match[str]) -> None:
    formats = load_target(match["machine"]).arithmetic.activations.formats
    assert "i16" not in formats and float(match["wide"]) > float(match["now"])


def _skip(made: Made, match: re.Match[str]) -> None:
    """Says nothing about placement or accuracy."""


def _counts(made: Made, match: re.Match[str]) -> None:
    found = Counter({kind: int(number) for number, kind in re.findall(r"(\d+) (integer|float)", match[1])})
    names = [result_names(op)[0] for op in made.source.ops if op.results and not isinstance(op, top.WeightOp)]
    kinds = Counter("integer" if made.is_integer(name) else "float" for name in names if name in made.makers)
    assert found == kinds


def _float(made: Made, match: re.Match[str]) -> None:
    kind, text, reason = match.groups()
    for name in re.sub(r" and \d+ more$", "", text).split(", "):
        assert not made.is_integer(name)
        assert made.makers[name].name == f"top.{kind}"
        if made.model is not None and reason in made.on_cpu.get(name, reason):
            continue
        # --device said so, which counts more.
        assert made.model is None or made.on_cpu[name] == "as asked"


def _npu(made: Made, match: re.Match[str]) -> None:
    part = made.subgraph(match["name"])
    assert isinstance(part, NpuSubgraph)
    groups = made.program.metadata["schedule"][match["name"]]["groups"]
    assert (int(match["groups"]), int(match["tiles"])) == (len(groups), sum(tiles for *_, tiles in groups))
    # Views and what is fused have no layer of their own.
    assert int(match["layers"]) >= sum(last - first for first, last, _ in groups)


def _cpu(made: Made, match: re.Match[str]) -> None:
    part = made.subgraph(match["name"])
    assert isinstance(part, CpuSubgraph) and len(part.reasons) == int(match["layers"])


def _host(made: Made, match: re.Match[str]) -> None:
    part = made.subgraph(match["name"])
    assert isinstance(part, HostConversion) and len(part.conversions) == int(match["count"])


def _because(made: Made, match: re.Match[str]) -> None:
    own = next(one for one in made.program.subgraphs if one.name == made.at)
    assert isinstance(own, CpuSubgraph)
    name, more, said = match["name"], int(match["more"] or 0), match["reason"]
    [reason] = [words for op, words in own.reasons.items() if shorten(op) == name and said.startswith(words)]
    assert list(own.reasons.values()).count(reason) == 1 + more
    # What follows is advice; tests/partition/test_reasons.py looks at that.
    assert said in (reason, said) and said[len(reason) : len(reason) + 2] in ("", ". ")


def _time(made: Made, match: re.Match[str]) -> None:
    assert match[1] == made.timing.time_words()
    assert f"{simulate(made.program).total:,} cycles" in match[1] or not made.timing.cycles
    if made.on_cpu:
        assert "an estimate" in match[1] and "CPU about" in match[1]


def _bounds(made: Made, match: re.Match[str]) -> None:
    entries = made.program.metadata["schedule"].values()
    for name, value in (("buffered", match[1]), ("roofline", match[2])):
        assert (
            int(value.replace(",", "")) == sum(one["bounds"][name] for one in entries) <= made.timing.cycles
        )


def _busy(made: Made, match: re.Match[str]) -> None:
    assert match[1] == ", ".join(f"{queue} {part:.1%}" for queue, part in made.timing.busy.items())


def _dram(made: Made, match: re.Match[str]) -> None:
    assert match[1] == size(made.timing.loaded + made.timing.stored)


def _memory(made: Made, match: re.Match[str]) -> None:
    segments = made.program.segments
    assert (match["weights"], match["workspace"]) == (size(segments[0].size), size(segments[1].size))
    if match["local"]:
        local = int(Target.from_dict(made.program.target).memory.local.size)
        assert (match["local"], match["whole"]) == (size(local_peak(made.program)), size(local))


def _weights(made: Made, match: re.Match[str]) -> None:
    assert match[1] == size(weight_bytes(made.source)) and match[2] == size(weight_bytes(made.integers))


def _alike(text: str, value: float) -> None:
    assert float(text) == pytest.approx(min(value, 100.0), abs=0.051)


def _slices(made: Made, match: re.Match[str]) -> None:
    whole, worst = made.decibels
    assert made.samples is not None and int(match["samples"]) == len(made.samples)
    assert match["slice"] == min(whole, key=lambda name: whole[name])
    assert match["sample"] == min(worst, key=lambda name: worst[name])
    _alike(match["least"], min(whole.values()))
    _alike(match["alone"], min(worst.values()))
    _alike(match["mean"], float(np.mean(list(whole.values()))))
    assert int(match["count"]) == len(whole) > 1


def _one_slice(made: Made, match: re.Match[str]) -> None:
    whole, worst = made.decibels
    [name] = whole
    assert (match["slice"], int(match["samples"])) == (name, len(made.samples))  # type: ignore[arg-type]
    _alike(match["least"], whole[name])
    _alike(match["alone"], worst[name])


_QUANTIZED: dict[str, Check] = {
    r"  accuracy worst slice (?P<slice>.*?) (?P<least>-?[\d.]+) dB on (?P<samples>\d+) calibration samples; the worst in one "
    r"sample (?P<sample>.*?) (?P<alone>-?[\d.]+) dB; the mean of (?P<count>\d+) slices (?P<mean>-?[\d.]+) dB": _slices,
    r"  accuracy (?P<slice>\S+) (?P<least>-?[\d.]+) dB on (?P<samples>\d+) calibration samples, (?P<alone>-?[\d.]+) dB in the "
    r"worst one": _one_slice,
    r"  config   .*": _skip,
    r"\S+ -> \S+ \([\d.]+ s\)": _skip,
    r"  layers   (.*)": _counts,
    r"           float: (\w+) (.*?): (.*)": _float,
    r"  scheme   .*": _skip,
    r"  ranges   .*": _skip,
    r"  weights  (.*) -> (.*)": _weights,
}
_COMPILED: dict[str, Check] = {
    r"\S+ -> \S+ for \S+ at -O\d \([\d.]+ s\)": _skip,
    **_QUANTIZED,
    r"  (?P<name>npu\d+) +NPU: (?P<layers>\d+) layers? in (?P<groups>\d+) groups?, (?P<tiles>\d+) tiles?": _npu,
    r"  (?P<name>cpu\d+) +CPU: (?P<layers>\d+) layers?": _cpu,
    r"  (?P<name>convert\d+) +host: (?P<count>\d+) conversions? between reals and integers": _host,
    r"           (?P<name>\S+)(?: and (?P<more>\d+) more)?: (?P<reason>.*)": _because,
    r"  time     (.*)": _time,
    r"  bounds   buffered ([\d,]+) \(.*?\), roofline ([\d,]+) \(.*": _bounds,
    r"  busy     (.*)": _busy,
    r"  DRAM     (.*?) moved, .*": _dram,
    r"  memory   weights (?P<weights>.*?), workspace (?P<workspace>.*?)"
    r"(?:, local (?P<local>.*?) of (?P<whole>.*?) at the peak(?:, in its first .*)?)?": _memory,
    r"  file     .*": _skip,
}


def _row(made: Made, match: re.Match[str]) -> None:
    device, said = match["device"].lower(), match["said"].strip()
    if device != "cpu":
        assert re.fullmatch(r"native|as \w+( and \w+)?|", said)
        return
    ops = [op for op in made.integers.ops if op.results]
    names = {result_names(op)[0] for op in ops if match["layer"] in (_layer(op), *result_names(op))}
    # A long reason is shown in part.
    begin, _, end = said.partition("…")
    reasons = [made.on_cpu[name] for name in names & made.on_cpu.keys()]
    assert any(reason.startswith(begin.rstrip()) and reason.endswith(end) for reason in reasons), said


def _layer(op: Any) -> str:
    from npuc.ir import layer_name

    return layer_name(op)


def _totals(made: Made, match: re.Match[str]) -> None:
    assert int(match["cpu"]) == len(made.on_cpu)
    assert match["target"] == made.program.target["name"]


def _parts(made: Made, match: re.Match[str]) -> None:
    kinds = {NpuSubgraph: "npu", CpuSubgraph: "cpu", HostConversion: "host"}
    parts = [(kinds[type(one)], one) for one in made.program.subgraphs]
    told = [one.split(" ") for one in match[2].split(", ")]
    assert int(match[1]) == len(parts) and [name for name, _ in told] == [name for name, _ in parts]
    for (_, count), (kind, one) in zip(told, parts, strict=True):
        if kind == "cpu":
            assert int(count) == len(one.reasons)
        elif kind == "host":
            assert int(count) == len(one.conversions)


def _ends(made: Made, match: re.Match[str]) -> None:
    for number, kind in (one.split(" ") for one in match[2].split(", ")):
        floats = [
            name for name, op in made.makers.items() if op.name == f"top.{kind}" and not made.is_integer(name)
        ]
        assert int(number) <= len(floats) and set(floats) <= made.on_cpu.keys()


def _group(made: Made, match: re.Match[str]) -> None:
    assert match["reason"] in made.on_cpu.values()
    count = len(match["names"].split(", ")) + int(match["more"] or 0)
    assert count == list(made.on_cpu.values()).count(match["reason"])


_INSPECTED: dict[str, Check] = {
    r"layer +op +device +part +MACs *": _skip,
    r"(?P<target>\S+): (?P<npu>\d+) layers? on the NPU, (?P<cpu>\d+) on the CPU; .*": _totals,
    r"  parts      (\d+): (.*)": _parts,
    r"  (before|after) +float work (?:before the first|after the last) integer layer: (.*)": _ends,
    r"  CPU        (?P<names>.*?)(?: and (?P<more>\d+) more)?: (?P<reason>(?:it stayed float: )?.*)": _group,
    r"             .*\.": _skip,  # advice: tests/partition/test_reasons.py
    r"(?P<layer>\S+) +(?P<op>\S+) +(?P<device>NPU|CPU|host) +\d* *(?:[\d.]+(?: [kMG])?)? *(?P<said>.*?)": _row,
}

_SMALL = "small"
CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "limits": ("transformer", "dpuczdx8g-b4096-like", ()),
    "no instruction": ("recurrent", "edge-4t", ()),
    "devices": ("detector", "dpuczdx8g-b4096-like", ("--device", "head=cpu", "--island-threshold", "0")),
    "float": ("gated", "edge-4t", ("--keep-float", "silu,gate")),
    "too large": ("segmenter", _SMALL, ("--island-threshold", "0")),
    "all on the NPU": ("dense", "edge-4t", ()),
    "all on the CPU": ("embedding", "edge-4t", ("--device", "*=cpu")),
}


@pytest.fixture
def case(request: Any, here: Path) -> tuple[Path, str, tuple[str, ...]]:
    """A network in a file, a target, and options."""
    name, target, more = CASES[request.param]
    save_graph(NETWORKS[name](), here / "net.mlir")
    if target == _SMALL:
        (here / "small.yaml").write_text(yaml.safe_dump(machine(1 << 10).to_dict()))
        target = "small.yaml"
    return here / "net.mlir", target, more


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_compile_and_inspect(case: tuple[Path, str, tuple[str, ...]], here: Path, npuc: Any) -> None:
    model, target, more = case
    to = here / "net.npu"
    done = npuc("compile", model, "--target", target, "--random", "-o", to, "--dump-ir", here / "ir", *more)
    assert done.status == 0, done.err
    source, integers = (load_model(here / "ir" / name) for name in ("1-canonical.mlir", "2-quantized.mlir"))
    made = Made(source, integers, load_compiled(to), to)
    seen = _lines(done.out, _COMPILED, made)
    assert seen[r"  layers   (.*)"] == 1 and sum(map(len, seen)) > 5
    told = npuc("inspect", model, "--target", target, *more)
    assert told.status == 0, told.err
    assert sum(_lines(told.out, _INSPECTED, made).values()) > 5
    rows = [line.split() for line in told.out.splitlines()]
    assert "as asked" not in done.out + told.out or more[:1] in (("--keep-float",), ("--device",))
    devices = Counter(row[2] for row in rows if len(row) > 2 and row[2] in ("CPU", "NPU"))
    assert devices["CPU"] == len(made.on_cpu)
    assert load_target(target).name == made.program.target["name"]


def _notes(text: str) -> list[str]:
    """The notes of a command, each in a line."""
    return [" ".join(note.split()) for note in re.split(r"^note: ", text, flags=re.M)[1:]]


def _lost(made: Made, match: re.Match[str]) -> None:
    whole, _ = made.decibels
    [name] = [one for one in whole if one.split(" ")[0] == (match["slice"] or match["output"])]
    _alike(match["least"], whole[name])


_WEAK = r"(?:'(?P<slice>\w+)' of )?the output '(?P<output>\w+)' \((?P<low>-?[\d.]+) dB\)"


def _weak(made: Made, match: re.Match[str]) -> None:
    _, alone = made.decibels
    found = list(re.finditer(_WEAK, match[0]))
    assert found
    for one in found:
        [name] = [key for key in alone if key.split(" ")[0] == (one["slice"] or one["output"])]
        _alike(one["low"], alone[name])


def _decibels(made: Made, match: re.Match[str]) -> None:
    _alike(match["mean"], float(np.mean(list(made.decibels[0].values()))))
    _alike(match["alone"], min(made.decibels[1].values()))


def _taken(made: Made, match: re.Match[str]) -> None:
    assert made.samples is not None and int(match["samples"]) == len(made.samples)
    assert match["mean"] or match["alone"]
    values = {"mean": np.mean(list(made.decibels[0].values())), "alone": min(made.decibels[1].values())}
    for name, value in values.items():
        if match[name]:
            _alike(match[name], float(value))
            assert float(match[name]) > float(match[f"{name}_before"])


def _kept(notes: list[str]) -> str:
    """Without corrections of a candidate that a later note drops for plain ranges."""
    plain = max((at for at, note in enumerate(notes) if note.endswith("so they are taken")), default=0)
    return "\n".join(
        note for at, note in enumerate(notes) if at >= plain or not note.startswith("corrected the biases")
    )


_NOTES: dict[str, Check] = {
    r".* (?:is|are) below 15 dB in the worst of \d+ samples?, and may be on other data; .* may help": _weak,
    r"(?:'(?P<slice>\w+)' of )?the output '(?P<output>\w+)' is only (?P<least>-?[\d.]+) dB above its error: .*": _lost,
    r"corrected the biases of \d+ layers: (?P<mean>[\d.]+) dB(?:, at worst (?P<alone>-?[\d.]+))?": _decibels,
    r"the ranges of max and nothing else are closer to float on (?P<samples>\d+) calibration samples? "
    r"\((?:the mean of the slices (?P<mean>-?[\d.]+) dB, not (?P<mean_before>-?[\d.]+))?(?:; )?"
    r"(?:the worst slice of the worst sample (?P<alone>-?[\d.]+) dB, not (?P<alone_before>-?[\d.]+))?\), "
    r"so they are taken": _taken,
    r"the quick steps are left out: plain ranges are closer on all calibration data": _skip,
    r"(?P<machine>\S+) has no activations of 16 bits, with which the worst slice would have "
    r"(?P<wide>[\d.]+) dB instead of (?P<now>[\d.]+)": _no_wide,
    # Of candidates that were not kept, and of what comes before the last step.
    r"per-tensor scales (?:leave the outputs at|left) .*": _skip,
    r"(?:equalized|migrated|absorbed|scaled|narrowed) .*": _skip,
    r"ranges by \w+: its outputs are closest to float .*": _skip,
    r"'\w+' joins parts that differ too much for one scale, so they are joined in float on the CPU: .*": _skip,
    r"16 bits for .*": _skip,
    # tests/quant looks at how many steps there are.
    r"'\w+' has one scale, which leaves .*: --keep-float \w+ joins them in float": _skip,
}
ACCURACY: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "joined on the CPU": ("joined", "edge-4t", ()),
    "a slice is lost": ("joined", "edge-4t", ("--no-widen",)),
    "one slice": ("gated", "edge-4t", ()),
    "float parts": ("detector", "dpuczdx8g-b4096-like", ("--keep-float", "exp")),
}


def _data(here: Path, model: Path) -> Array:
    shape = shape_of(load_model(model).inputs[0].value)
    samples = np.random.default_rng(3).standard_normal((10, *shape[1:])).astype(np.float32)
    np.save(here / "data.npy", samples)
    return samples


@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy_is_what_the_program_has(name: str, here: Path, npuc: Any) -> None:
    network, target, more = ACCURACY[name]
    model, to = here / "net.mlir", here / "net.npu"
    save_graph(NETWORKS[network](), model)
    samples = _data(here, model)
    base = (model, "--target", target, "--data", here / "data.npy", *more)
    done = npuc("compile", *base, "-o", to, "--dump-ir", here / "ir")
    assert done.status == 0, done.err
    source, integers = (load_model(here / "ir" / name) for name in ("1-canonical.mlir", "2-quantized.mlir"))
    made = Made(source, integers, load_compiled(to), to, samples=samples)
    _lines(done.out, _COMPILED, made)
    assert "accuracy" in done.out
    notes = _notes(done.err)
    _lines(_kept(notes), _NOTES, made)
    told = npuc("inspect", *base)
    assert told.status == 0, told.err
    _lines(told.out, _INSPECTED, made)
    assert "as asked" not in done.out + told.out or "--keep-float" in more
    # The same in two steps.
    done = npuc("quantize", *base, "-o", here / "net.int.mlir")
    assert done.status == 0, done.err
    only = Made(source, load_model(here / "net.int.mlir"), None, to, samples=samples)
    _lines(done.out, _QUANTIZED, only)
    _lines(_kept(_notes(done.err)), _NOTES, only)
    # What is lost comes back with what is advised.
    for note in notes:
        if remedy := re.search(
            r"above its error: (--[\w-]+) (\S+) gives all slices ([\d.]+) dB or more", note
        ):
            options = [*more, remedy[1], remedy[2]]
            again = npuc("compile", *base[:5], *options, "-o", to, "--dump-ir", here / "again", "-q")
            assert again.status == 0, again.err
            better = Made(
                source, load_model(here / "again/2-quantized.mlir"), load_compiled(to), to, samples=samples
            )
            assert min(better.decibels[0].values()) > float(remedy[3]) - 1.0
            assert min(better.decibels[0].values()) >= LOST
