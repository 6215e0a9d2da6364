"""Question 1: can this op run here? Checked on the published limits of one part, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from npuc.errors import LimitExpressionError
from npuc.target import DescribedMachine, Machine, Target, check_op, load_target, support
from npuc.target.vocabulary import MACHINE, OP_KINDS
from support.targets import small

CONV = {
    "n": 1,
    "ic": 64,
    "oc": 64,
    "kh": 3,
    "kw": 3,
    "sh": 1,
    "sw": 1,
    "dh": 1,
    "dw": 1,
    "pad_top": 1,
    "pad_left": 1,
    "pad_bottom": 1,
    "pad_right": 1,
    "group": 1,
}
POOL = {name: value for name, value in CONV.items() if name not in ("group", "oc")}


def failed(op: str, base: dict[str, Any], **changes: Any) -> list[str]:
    target = load_target("dpuczdx8g-b4096-like")
    return [failure.rule.rpartition(".")[2] for failure in check_op(target, op, base | changes)]


@pytest.mark.parametrize(
    ("op", "base", "changes", "expected"),
    [
        ("conv", CONV, {}, []),
        ("conv", CONV, {"activation": "hard_swish"}, []),
        ("conv", CONV, {"activation": "tanh"}, ["conv"]),
        ("conv", CONV, {"group": 2}, ["group"]),
        ("conv", CONV, {"kw": 16, "kh": 16}, []),
        ("conv", CONV, {"kw": 17}, ["kernel"]),
        ("conv", CONV, {"kw": 16, "kh": 16, "ic": 128}, []),
        ("conv", CONV, {"kw": 16, "kh": 16, "ic": 129}, ["weight_bank"]),
        ("conv", CONV, {"sw": 8}, []),
        ("conv", CONV, {"sw": 9}, ["stride"]),
        ("conv", CONV, {"dh": 64}, []),
        ("conv", CONV, {"dh": 65}, ["dilation"]),
        ("conv", CONV, {"pad_left": 3}, ["padding_horizontal"]),
        ("conv", CONV, {"pad_left": 4, "dw": 2}, []),
        ("conv", CONV, {"pad_bottom": 3}, ["padding_vertical"]),
        ("conv", CONV, {"oc": 4096}, []),
        ("conv", CONV, {"oc": 4097}, ["output_channels"]),
        ("conv", CONV, {"ic": 4097, "kh": 1, "kw": 1, "pad_top": 0, "pad_bottom": 0, "pad_left": 0, "pad_right": 0},
         ["dilation", "input_channels"]),
        ("depthwise_conv", CONV, {"kw": 17, "group": 64}, []),
        ("depthwise_conv", CONV, {"activation": "leaky_relu"}, ["depthwise_conv"]),
        ("depthwise_conv", CONV, {"kw": 20, "kh": 20, "pad_left": 16}, ["padding_horizontal"]),
        ("deconv", CONV | {"output_padding_h": 0, "output_padding_w": 0}, {"sw": 4, "sh": 3}, ["kernel"]),
        ("deconv", CONV | {"output_padding_h": 1, "output_padding_w": 0}, {}, ["output_padding"]),
        ("max_pool", POOL, {}, []),
        ("max_pool", POOL, {"kh": 256, "kw": 64}, []),
        ("max_pool", POOL, {"kh": 256, "kw": 65}, ["window_bank"]),
        ("avg_pool", POOL, {"activation": "relu6"}, []),
        ("avg_pool", POOL, {"sw": 257}, ["stride"]),
        ("add", {"ic": 4097}, {}, ["channels"]),
        ("add", {"ic": 64}, {"activation": "relu6"}, ["add"]),
        ("argmax", {"ic": 128, "axis": 1}, {}, []),
        ("argmax", {"ic": 129, "axis": 2}, {}, ["axis", "channels"]),
        ("space_to_depth", {"ic": 1024, "block": 2}, {}, []),
        ("space_to_depth", {"ic": 1025, "block": 2}, {}, ["channels"]),
        ("resize_nearest", {"ic": 64, "scale_h": 2, "scale_w": 2}, {}, []),
        ("resize_nearest", {"ic": 64, "scale_h": 1.5, "scale_w": 2}, {}, ["whole_scale"]),
        ("resize_linear", {"scale_h": 8, "scale_w": 8, "align_corners": 0, "half_pixel": 0}, {}, []),
        ("resize_linear", {"scale_h": 8, "scale_w": 8, "align_corners": 0, "half_pixel": 1}, {}, ["scale"]),
        ("softmax", {"axis": 1}, {}, ["softmax"]),
        ("conv3d", {}, {}, ["conv3d"]),
        ("lstm", {}, {}, ["ops"]),
        ("permute", {}, {}, []),
    ],
)  # fmt: skip
def test_the_published_limits(
    op: str, base: dict[str, Any], changes: dict[str, Any], expected: list[str]
) -> None:
    assert failed(op, base, **changes) == expected


def test_a_failure_has_the_sentence_and_the_values() -> None:
    target = load_target("dpuczdx8g-b4096-like")
    [failure] = check_op(target, "conv", CONV | {"kw": 5, "kh": 5, "ic": 1536})
    assert failure.rule == "limits.rules.conv.weight_bank"
    assert str(failure) == (
        "The kernel of one output channel does not fit a bank: "
        "kw * kh * ceil(ic / channel_parallel) may be bank_depth = 2048 at most, and is 2400."
    )
    [failure] = check_op(target, "tanh", {})
    assert str(failure) == "Tanh is left to the CPU."


def test_a_rewrite_is_checked_as_what_it_becomes() -> None:
    target = load_target("dpuczdx8g-b4096-like")
    found = support(target, "matmul", {"batch": 1, "rows": 1, "inner": 512, "columns": 1000})
    assert (found.verdict, found.runs_as, found.parameters["ic"]) == ("rewrite", "conv", 512)
    assert found
    found = support(target, "matmul", {"batch": 1, "rows": 1, "inner": 512, "columns": 5000})
    assert not found and [failure.rule for failure in found.failures] == ["limits.rules.conv.output_channels"]
    mean = {"ic": 64, "ih": 7, "iw": 7, "reduce_n": 0, "reduce_c": 0, "reduce_h": 1, "reduce_w": 1}
    assert support(target, "reduce_mean", mean).runs_as == "avg_pool"
    assert not support(target, "reduce_mean", mean | {"reduce_c": 1})
    assert not support(target, "reduce_mean", mean | {"ih": 300})


def test_machine_figures_and_constants_can_be_used() -> None:
    rule = {
        "require": "ic*ih*iw <= bank_bytes*banks/2 and oc <= wide*output_lanes",
        "because": "It is too large.",
    }
    target = Target.from_dict(small(limits={"constants": {"wide": 2}, "rules": {"conv": {"a": rule}}}))
    fits = {"ic": 32, "ih": 32, "iw": 32, "oc": 8}
    assert check_op(target, "conv", fits) == []
    assert len(check_op(target, "conv", fits | {"iw": 33})) == 1
    assert len(check_op(target, "conv", fits | {"oc": 9})) == 1
    assert set(target.figures) == set(MACHINE)


def test_reference_machines_have_no_limits() -> None:
    target = load_target("edge-4t")
    assert all(check_op(target, op, {}) == [] for op in OP_KINDS)


def test_wrong_questions() -> None:
    target = load_target("dpuczdx8g-b4096-like")
    with pytest.raises(ValueError, match="'cnov' is not an op kind; did you mean 'conv'"):
        check_op(target, "cnov", {})
    with pytest.raises(ValueError, match="'conv' has no parameter 'stride_w'"):
        check_op(target, "conv", CONV | {"stride_w": 1})
    with pytest.raises(LimitExpressionError, match="needs a value for 'group'"):
        check_op(target, "conv", {})


def test_a_described_machine_is_a_machine() -> None:
    machine: Machine = DescribedMachine(load_target("edge-4t"))
    assert isinstance(machine, Machine)
    assert machine.can("conv", CONV).verdict == "native"
    assert machine.description.name == "edge-4t"


def test_aries_like_limits() -> None:
    target = load_target("aries-like")
    assert check_op(target, "concat", {"axis": 1}) == []
    assert len(check_op(target, "concat", {"axis": 2})) == 1
    assert len(check_op(target, "mul", {"constant_operand": 0, "broadcast": 0})) == 1
    assert len(check_op(target, "gelu", {})) == 1
