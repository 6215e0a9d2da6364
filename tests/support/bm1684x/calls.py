"""A command of the BM1684X as the call of SOPHGO's own library that makes the same command.

Names of functions and the order of their arguments are facts of the header tpu_kernel.h, which SOPHGO publishes.
"""

from __future__ import annotations

from typing import Any

from npuc.program.bm1684x.commands import DDR_BASE, LOCAL_BASE, STRIDED, Command

Arguments = list[tuple[str, Any]]
INT8, UINT8, HALF_UP = 1, 0, 5
_ARITHMETIC = {0: "mul", 2: "add", 3: "sub", 4: "max", 5: "min", 7: "and", 15: "add", 21: "shift"}
_WITHIN = 15
"""A sum that stays within its type."""


def free_fields(command: Command) -> frozenset[str]:
    """Fields that the vendor's encoder sets otherwise; that they change nothing is what the functional model shows.

    A transfer with `nchw_copy` takes the sizes of its source, and one that fills has no source. No function of the vendor's gives
    a depthwise convolution the same bias for all channels; the command holds one, and the functional model adds it.
    """
    if command.form.name == "TENSOR":
        if command.values["fill_constant_en"]:
            return frozenset(
                name for name in command.values if name.startswith("src_") and name != "src_data_format"
            )
        return frozenset(
            {"dst_nsize", "dst_csize", "dst_hsize", "dst_wsize"} if command.values["nchw_copy"] else ()
        )
    if command.form.name == "PORD" and command.values["opd2_const"]:
        return frozenset({"opd2_sign", "opd2_addr"})
    return frozenset()


def call_of(command: Command) -> list[Any]:
    """Engine, number, number waited for, function and arguments."""
    values = command.values
    function, arguments = _CALLS[command.form.name](values)
    return [command.form.engine, values["cmd_id"], values["cmd_id_dep"], function, arguments]


def _type(values: dict[str, int], name: str) -> tuple[str, int]:
    """The vendor's number of a type: its code, and a bit for the sign, which a result does not have."""
    return "i32", values[f"{name}_prec"] << 1 | 1


def _shape(values: dict[str, int], name: str = "res0", axes: str = "nchw") -> tuple[str, list[int]]:
    return "ints", [values[f"{name}_{axis}"] for axis in axes]


def _strides(values: dict[str, int], name: str) -> tuple[str, list[int] | None]:
    if values[f"{name}_str"] != STRIDED:
        return "ints", None
    return "ints", [values[f"{name}_{axis}_str"] for axis in "nchw"]


def _at(values: dict[str, int], *names: str) -> Arguments:
    return [("u32", values[f"{name}_addr"]) for name in names]


def _window(values: dict[str, int]) -> Arguments:
    return [
        ("ints", [values["opd1_h"], values["opd1_w"]]),
        ("ints", [values[f"opd0_{side}_pad"] for side in ("up", "dn", "lf", "rt")]),
        ("ints", [values["res_op_y_str"], values["res_op_x_str"]]),
        ("ints", [values["opd1_y_ins0"] + 1, values["opd1_x_ins0"] + 1]),
    ]


def _conv(values: dict[str, int]) -> tuple[str, Arguments]:
    operand = ("ints", [values["res0_n"], values["opd0_c"], values["opd0_h"], values["opd0_w"]])
    return "tpu_bdc_int8_asym_quant_conv2d", [
        *_at(values, "res0", "opd0", "opd1", "opd2", "opd3"), operand, _strides(values, "opd0"),
        ("i32", values["res0_c"]), *_window(values), _type(values, "res0"), ("i32", INT8), ("i32", INT8), ("i32", INT8),
        ("bool", values["res_add"]),
    ]  # fmt: skip


def _pord(values: dict[str, int]) -> tuple[str, Arguments]:
    operand = ("ints", [values["res0_n"], values["res0_c"], values["opd0_h"], values["opd0_w"]])
    if values["tsk_eu_typ"] == 4:
        return "tpu_bdc_int8_max_pool2d", [
            *_at(values, "res0", "opd0"), operand, *_window(values), ("i32", INT8), ("u32", values["opd3_addr"]),
        ]  # fmt: skip
    constant = values["opd1_const"]
    names = ("res0", "opd0", "opd2", "opd1", "opd3") if constant else ("res0", "opd0", "opd1", "opd2", "opd3")
    return "tpu_bdc_int8_depthwise2d" + ("_kernel_const" if constant else ""), [
        *_at(values, *names), operand, *_window(values), _type(values, "res0"), ("i32", INT8), ("i32", INT8), ("i32", 9),
        ("u8", 0), ("bool", not values["opd2_const"]), ("bool", False), ("i32", 0),
    ]  # fmt: skip


def _ar(values: dict[str, int]) -> tuple[str, Arguments]:
    kind = values["tsk_eu_typ"]
    shape, result = _shape(values), _strides(values, "res0")
    if kind == 19:
        if values["opd0_const"]:
            return "tpu_bdc_set_C", [*_at(values, "res0", "opd0"), shape, result, _type(values, "res0")]
        return "tpu_bdc_cpy", [
            *_at(values, "res0", "opd0"), shape, result, _strides(values, "opd0"), _type(values, "res0"),
        ]  # fmt: skip
    name = _ARITHMETIC[kind]
    first, second = bool(values["opd0_const"]), bool(values["opd1_const"])
    own = [_strides(values, operand) for operand in ("opd0", "opd1") if not values[f"{operand}_const"]]
    types = [_type(values, operand) for operand in ("res0", "opd0", "opd1")]
    rounding = ("i32", values["opd2_n_str"])
    if name == "shift":
        by: Arguments = [("i8", values["opd1_addr"])] if second else _at(values, "opd1")
        return "tpu_bdc_arithmetic_shift" + ("_C" if second else ""), [
            *_at(values, "res0", "opd0"), *by, shape, result, *own, *types[: 2 if second else 3], rounding,
        ]  # fmt: skip
    places = _at(values, "res0", *(("opd1", "opd0") if first else ("opd0", "opd1")))
    common = [*places, shape, result, *own]
    if name in ("max", "min", "and"):
        return f"tpu_bdc_{name}" + ("_C" if second else ""), [*common, types[0]]
    if first:
        types[1:] = types[:0:-1]
    shift = values["opd2_addr"] if values["tsk_opd_num"] == 3 else 0
    function = f"tpu_bdc_int_C_{name}" if first else f"tpu_bdc_int_{name}" + ("_C" if second else "")
    return function, [*common, *types, ("i8", shift), rounding, ("bool", kind == _WITHIN)]


def _rq(values: dict[str, int]) -> tuple[str, Arguments]:
    types = [_type(values, "res0"), _type(values, "opd0"), ("i32", values["opd2_n_str"])]
    if not values["opd1_const"]:
        return "tpu_bdc_int_pc_requant", [*_at(values, "res0", "opd0", "opd1"), _shape(values), *types]
    packed = values["opd2_addr"]
    return "tpu_bdc_int_requant", [
        *_at(values, "res0", "opd0"), _shape(values), ("i32", values["opd1_addr"]), ("i8", packed & 0xFF), ("u32", packed >> 16),
        *types,
    ]  # fmt: skip


def _bc(values: dict[str, int]) -> tuple[str, Arguments]:
    return "tpu_bdc_cw_trans", [*_at(values, "res0", "opd0"), _shape(values), _type(values, "res0")]


def _sg(values: dict[str, int]) -> tuple[str, Arguments]:
    return "tpu_bdc_batch_bcast_w_gather", [
        *_at(values, "res0", "opd0", "opd1"), _shape(values), ("i32", values["opd0_w"]), _type(values, "res0"), ("i32", UINT8),
        ("bool", True),
    ]  # fmt: skip


def _tensor(values: dict[str, int]) -> tuple[str, Arguments]:
    sides, spaces = [], ""
    for side in ("dst", "src"):
        address = values[f"{side}_start_addr_h8"] << 32 | values[f"{side}_start_addr_l32"]
        far = address >= DDR_BASE
        spaces = ("S" if far else "L") + spaces
        sides.append(("u64", address) if far else ("u32", address - LOCAL_BASE))
    shape = ("ints", [values[f"src_{axis}size"] for axis in "nchw"])
    strides = [("ints", [values[f"{side}_{axis}stride"] for axis in "nchw"]) for side in ("dst", "src")]
    dtype = ("i32", values["src_data_format"] << 1 | 1)
    if values["fill_constant_en"]:
        return "tpu_gdma_set_C_system", [
            sides[0],
            ("u32", values["constant_value"]),
            shape,
            strides[0],
            dtype,
        ]
    return f"tpu_gdma_cpy_{spaces[0]}2{spaces[1]}", [*sides, shape, *strides, dtype]


_CALLS: dict[str, Any] = {
    "CONV": _conv, "PORD": _pord, "AR": _ar, "RQ": _rq, "BC": _bc, "SG": _sg, "TENSOR": _tensor,
}  # fmt: skip
