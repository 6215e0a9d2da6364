"""The presets: the reference machines are those of the design, and every vendor-like figure has its source."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from npuc.target import check_op, load_target
from npuc.target.load import PRESETS, load_with_files

FILES = sorted(PRESETS.glob("*.yaml"))
REFERENCE = {
    # cores, oc, ic, px, vector lanes, local bytes, banks, shared bytes, shared bytes a cycle, DRAM bytes a second
    "edge-1t": (1, 8, 8, 8, 32, 512 * 1024, 8, 0, 0, 4 * 10**9),
    "edge-4t": (1, 16, 16, 8, 128, 2 * 1024**2, 16, 0, 0, 16 * 10**9),
    "server-32t": (4, 16, 16, 16, 256, 2 * 1024**2, 16, 8 * 1024**2, 256, 64 * 10**9),
}
VENDOR_LIKE = {
    "aries-like",
    "bm1684x-like",
    "vipnano-like",
    "vipnano-e8-like",
    "zhouyi-x1-like",
    "zhouyi-x2-like",
    "zhouyi-x2mp3-like",
    "dpuczdx8g-b4096-like",
    "dpucvdx8g-c32b3-like",
    "dpucahx8h-dwc-like",
    "ethos-u65-256-like",
}
CHIPS = {"bm1684x"}
"""Chips themselves, with instruction sets of their own."""


def test_these_are_the_presets() -> None:
    assert {file.stem for file in FILES} == set(REFERENCE) | VENDOR_LIKE | CHIPS


def test_only_chips_have_instruction_sets_of_their_own() -> None:
    own = {file.stem for file in FILES if load_target(file.stem).instruction_set != "npuc"}
    assert own == CHIPS
    assert "instruction_set" not in load_target("edge-1t").to_dict()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_preset_is_valid_and_named_like_its_file(file: Path) -> None:
    load_with_files(file.stem)
    target = load_target(file.stem)
    assert target.name == file.stem and target.description


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_machines(name: str) -> None:
    target = load_target(name)
    compute, memory = target.compute, target.memory
    shared = memory.shared
    assert (
        compute.cores,
        compute.array.output_channels,
        compute.array.input_channels,
        compute.array.pixels,
        compute.vector_lanes,
        memory.local.size,
        memory.local.banks,
        shared.size if shared else 0,
        shared.bandwidth.bytes_per_cycle(compute.clock) if shared else 0,
        memory.dram.bandwidth.bytes_per_second(compute.clock),
    ) == REFERENCE[name]
    assert compute.clock == 10**9
    assert compute.array.rate("i8", "i8") == compute.array.rate("i8", "i4") == 1
    assert compute.array.rate("i16", "i8") == compute.array.rate("i16", "i16") == Fraction(1, 4)
    assert compute.array.depthwise == "idle_input_lanes"
    assert memory.dram.latency.cycles(compute.clock) == 200 and memory.dram.burst == 64
    assert target.peak_operations() // 1e12 == int(name.rpartition("-")[2][:-1])
    assert set(target.arithmetic.requantization.kinds) == {
        "double_rounding",
        "single_rounding",
        "single_even",
        "pow2",
        "float_scale",
    }


@pytest.mark.parametrize("name", sorted(VENDOR_LIKE | CHIPS))
def test_every_figure_has_a_source(name: str) -> None:
    """Every line with a number or a number format has a comment that names a document, or says that none states it."""
    text = (PRESETS / f"{name}.yaml").read_text()
    sources = set(re.findall(r'^# Source "([^"]+)":', text, re.MULTILINE))
    assert sources
    comment = ""
    for line in text.splitlines():
        code, _, own = line.partition("#")
        if not code.strip():
            comment = own
            continue
        key, _, value = code.strip().partition(":")
        value = value.replace("BM1684X", "")
        words = own or comment
        comment = ""
        if key in ("name", "description", "extends", "because", "instruction_set") or not re.search(
            r"\d|\[|null", value
        ):
            continue
        plain = ("not stated", "not among", "no public source")
        known = any(source in words for source in sources) or any(phrase in words.lower() for phrase in plain)
        assert known, f"{name}: no source for {line.strip()!r}"


def test_presets_after_unpublished_manuals_cite_public_sources_only(root: Path) -> None:
    """No citation of a manual by section or table in these presets; and no file of the repository cites those manuals.

    The tools themselves may be named: `npuc compat` runs their commands."""
    for name in ("aries-like", "zhouyi-x1-like", "zhouyi-x2-like", "zhouyi-x2mp3-like"):
        text = (PRESETS / f"{name}.yaml").read_text()
        for source in re.findall(r'^# Source "[^"]+": .*', text, re.MULTILINE):
            assert "github.com/" in source, f"{name}: {source}"
        comments = " ".join(line.partition("#")[2] for line in text.splitlines())
        cited = re.search(r"\b(manual|guide \d|table|chapter) ?\d|[A-Z]\w+ \d+\.\d+", comments)
        assert not cited, f"{name}: {cited}"
    named = re.compile(
        "|".join(
            (
                r"qu" + r"bee('s)? (SDK |user |reference )*(manual|guide|document)",
                "Compass NN " + "Compiler",
                "Compass user " + "guide",
            )
        ),
        re.IGNORECASE,
    )
    for folder in ("src", "docs", "tests", "benchmarks", "examples", "native"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".md", ".py", ".yaml", ".c", ".h", ".hpp", ".txt", ".html", ".css", ".js"):
                assert not named.search(path.read_text(errors="replace")), path


def test_number_formats_of_the_families() -> None:
    dpu = load_target("dpuczdx8g-b4096-like").arithmetic
    assert dpu.requantization.kinds == ("pow2",) and dpu.weights.granularity == ("per_tensor",)
    assert (dpu.requantization.min_shift, dpu.requantization.max_shift) == (0, 16)
    zhouyi = load_target("zhouyi-x2mp3-like")
    assert zhouyi.arithmetic.requantization.kinds == ("single_even",)
    assert zhouyi.arithmetic.requantization.multiplier_bits == 15
    assert zhouyi.compute.cores == 3 and zhouyi.memory.shared and zhouyi.memory.shared.size == 4 * 1024**2
    sophgo = load_target("bm1684x-like")
    assert (
        "float_scale" in sophgo.arithmetic.requantization.kinds and sophgo.memory.local.size == 16 * 1024**2
    )
    assert sophgo.memory.shared is None and set(sophgo.arithmetic.activations.formats) == {
        "i8",
        "u8",
        "f16",
        "bf16",
        "f32",
    }
    plain, e8 = load_target("vipnano-like").arithmetic, load_target("vipnano-e8-like").arithmetic
    assert plain.activations.formats["u8"] == ("affine",) and "per_channel" not in plain.weights.granularity
    assert "per_channel" in e8.weights.granularity
    assert load_target("aries-like").compute.cores > 1
    ethos = load_target("ethos-u65-256-like")
    assert ethos.peak_operations() == 2 * 256 * 10**9 and ethos.memory.local.size == 384 * 1024
    assert ethos.memory.dram.bandwidth.bytes_per_cycle(ethos.compute.clock) == Fraction(15, 4)
    assert ethos.arithmetic.requantization.kinds == ("double_rounding",)


def test_the_example_of_the_documentation(root: Path, tmp_path: Path) -> None:
    page = (root / "docs/targets.md").read_text()
    file = tmp_path / "my-npu.yaml"
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    target = load_target(file)
    assert target.compute.cores == 2 and "i4" not in target.arithmetic.weights.formats
    assert len(check_op(target, "conv", {"kw": 7, "kh": 7, "ic": 1024})) == 1
    code, _, expected = page.partition("```python\n")[2].partition("```")[0].rpartition("# ")
    printed: list[str] = []
    exec(code, {"print": lambda value: printed.append(str(value))})
    assert printed == [expected.strip()]
