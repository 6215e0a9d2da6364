"""What `prepare` fixes and `state_dict` has to carry: types and ranges of tensors, and which layers they belong to.

Weights and scales are parameters. Zero points, signs and the ranges of tensors that are not learned come from calibration, and
determine the deployed integers as much; they are JSON in a tensor of bytes, which every way to save a `state_dict` can write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from npuc.calib.table import Entry
from npuc.errors import NpucError, TrainingError
from npuc.ir import Value, shape_of, shown_name, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.quant.scheme import Scheme

if TYPE_CHECKING:
    from npuc.train.qat.module import QatPlan

_VERSION = 1


def plan_state(plan: QatPlan) -> Any:
    """What of a plan comes from calibration, and the layers that it is for, as a tensor of bytes."""
    entries = plan.ranges.values()
    state = {
        "version": _VERSION,
        "layers": _layers(plan),
        "ranges": {entry.name: [entry.threshold, entry.min, entry.max] for entry in entries},
        "types": {tensor.name: _numbers(tensor.kind) for tensor in plan.tensors},
        "fixed": {value_name(value): _numbers(kind) for value, kind in plan.fixed.items()},
    }
    text = json.dumps(state, sort_keys=True, default=str).encode()
    return torch.from_numpy(np.frombuffer(text, np.uint8).copy())


def with_state(plan: QatPlan, state: Any) -> QatPlan:
    """The plan with the types and ranges of another for the same layers; `TrainingError` if its layers are others."""
    content = _parsed(state)
    _require_same_layers(_layers(plan), content["layers"])
    names = {"types": [tensor.name for tensor in plan.tensors], "ranges": list(plan.ranges)}
    names["fixed"] = [value_name(value) for value in plan.fixed]
    for part, own in names.items():
        if set(content[part]) != set(own):
            name = sorted(set(content[part]) ^ set(own))[0]
            raise TrainingError(
                f"the state is of a module that quantizes other tensors: '{name}' is in one of them only",
                fix="Prepare the module with the model, target and configuration of the state",
            )
    types = {name: _type(name, numbers) for name, numbers in content["types"].items()}
    for tensor in plan.tensors:
        if types[tensor.name].dtype.bits != tensor.kind.dtype.bits:
            raise _unreadable(f"the type of '{tensor.name}' has other bits than its layer")
    return replace(
        plan,
        ranges={name: _entry(name, content["ranges"][name]) for name in plan.ranges},
        tensors=tuple(replace(tensor, kind=types[tensor.name]) for tensor in plan.tensors),
        fixed={value: _fixed(value, content["fixed"]) for value in plan.fixed},
    )


def _layers(plan: QatPlan) -> list[list[Any]]:
    """Name, op, shapes and scheme of every layer, as JSON has them."""
    ops = [op for op in plan.source.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
    schemes = {op: plan.scheme_of(op) for op in ops}
    layers = [
        [
            shown_name(op),
            op.name,
            [list(shape_of(value)) for value in op.results],
            None if (scheme := schemes[op]) is None else asdict(scheme),
        ]
        for op in ops
    ]
    plain: list[list[Any]] = json.loads(json.dumps(layers, default=str))
    return plain


def _require_same_layers(own: list[list[Any]], other: Any) -> None:
    """Refuse the state of another network, or of one whose layers are quantized by other schemes."""
    fix = "Prepare the module with the model, target and configuration of the state"
    if not isinstance(other, list) or [layer[:3] for layer in own] != [layer[:3] for layer in other]:
        raise TrainingError("the state is of a module of another network", fix=fix)
    # A state that is older than a field of schemes was made with the default of it.
    defaults = json.loads(json.dumps(asdict(Scheme()), default=str))
    for (name, _, _, scheme), (*_, known) in zip(own, other, strict=True):
        saved = {**defaults, **known} if isinstance(known, dict) else known
        if scheme == saved:
            continue
        if not isinstance(scheme, dict) or not isinstance(saved, dict):
            raise TrainingError(f"the layer '{name}' is float in the state or in this module only", fix=fix)
        key = next(key for key in saved if saved[key] != scheme.get(key))
        raise TrainingError(
            f"the layer '{name}' has {key} {saved[key]} in the state, and {scheme.get(key)} in this module",
            fix=fix,
        )


def _parsed(state: Any) -> dict[str, Any]:
    try:
        content = json.loads(bytes(state.detach().cpu().numpy().astype(np.uint8)))
        parts = [content[part] for part in ("types", "ranges", "fixed")]
        if content["version"] != _VERSION or not all(isinstance(part, Mapping) for part in parts):
            raise _unreadable("it is of another version of npuc")
        assert isinstance(content, dict)
        if not all(isinstance(layer, list) and len(layer) == 4 for layer in content["layers"]):
            raise _unreadable("its layers are damaged")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unreadable("it is damaged") from error
    return content


def _unreadable(reason: str) -> TrainingError:
    return TrainingError(f"the state is none of a module of npuc.train.prepare: {reason}")


def _numbers(kind: QuantType) -> list[Any]:
    return [kind.dtype.name, kind.scale, kind.zero_point]


def _type(name: str, numbers: Any) -> QuantType:
    try:
        dtype, scale, zero_point = numbers
        kind = QuantType.of(dtype, float(scale), int(zero_point))
        low, high = kind.dtype.limits
        if isfinite(kind.scale) and kind.scale > 0 and low <= kind.zero_point <= high:
            return kind
    except (AssertionError, NpucError, TypeError, ValueError) as error:
        raise _unreadable(f"the type of '{name}' is damaged") from error
    raise _unreadable(f"the type of '{name}' is damaged")


def _fixed(value: Value, types: Mapping[str, Any]) -> QuantType:
    return _type(value_name(value), types[value_name(value)])


def _entry(name: str, numbers: Any) -> Entry:
    try:
        threshold, least, most = map(float, numbers)
        return Entry(name, threshold, least, most)
    except (TypeError, ValueError) as error:
        raise _unreadable(f"the range of '{name}' is damaged") from error
