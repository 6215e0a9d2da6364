"""The walk: layer by layer into Top IR.

A layer without a rule, or whose shapes are not known because such a layer comes before it, is kept as a custom op of
the format's own domain with its parameters, so that an import never fails because a layer is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from npuc.errors import InvalidModelError, NpucError, ResourceLimitError
from npuc.frontend.layered.context import LayerScope, NoForm
from npuc.frontend.layered.network import LayeredNetwork, cut, known_shape
from npuc.frontend.layered.registry import ContextT, Rule
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.frontend.support import MAX_ELEMENTS, check_names, erase_dead
from npuc.ir import Graph, Value, dtype_of, is_static, shape_of, tensor_type
from npuc.ir.definition import ShapeError
from npuc.words import counted

Attributes = Mapping[str, Any]


def build(
    network: LayeredNetwork,
    options: ImportOptions,
    rules: Mapping[str, Rule[ContextT]],
    context: Callable[[Any, LayerScope], ContextT],
    domain: str,
    describe: Callable[[ContextT], tuple[list[Value], Attributes]],
) -> Graph:
    """Top IR of a network. `describe` gives what a custom op of `domain` keeps: more operands, and attributes."""
    middle = [name for name in options.inputs if name not in {*network.inputs, *options.input_shapes}]
    check_names(options.inputs, network.names, "--inputs")
    if middle:
        # The shapes of tensors in the middle are those that the whole network would give them.
        whole = replace(options, inputs=(), outputs=tuple(middle), preprocess={})
        shapes = {
            port.name: shape_of(port.value)
            for port in build(network, whole, rules, context, domain, describe).outputs
            if is_static(port.value)
        }
        given = {name: shape for name, shape in options.input_shapes.items() if name in options.inputs}
        options = replace(options, input_shapes={**shapes, **given})
    part = cut(network, options)
    graph = Graph.empty(
        [(name, tensor_type(shape, network.types.get(name, "f32"))) for name, shape in part.inputs.items()],
        preprocess={name: item.to_dict() for name, item in options.preprocess.items()},
    )
    scope = LayerScope(graph)
    for port in graph.inputs:
        scope.values[port.name] = port.value
        scope.unique(port.name)
    for name, text in part.constants.items():
        shape = known_shape(name, options.input_shapes.get(name) or network.inputs[name])
        array = input_constant(name, text, shape, dtype_of("f32"))
        scope.values[name] = scope.store(array, name)
    unknown: list[str] = []
    for layer in part.layers:
        ctx = context(layer, scope)
        results = _translated(ctx, rules, domain, describe, unknown)
        if len(results) < len(layer.outputs):
            raise ctx.invalid(f"it makes {len(results)} tensors, not {len(layer.outputs)}")
        for name, value in zip(layer.outputs, results, strict=False):
            if is_static(value) and prod(shape_of(value)) > MAX_ELEMENTS:
                raise ResourceLimitError(f"{layer.label}: its result has the shape {list(shape_of(value))}")
            scope.values[name] = value
        ctx.named(results)
    missing = [name for _, name in part.outputs if name not in scope.values]
    if missing:
        raise InvalidModelError(f"nothing makes the output '{missing[0]}'")
    graph.set_outputs([(name, scope.values[tensor]) for name, tensor in part.outputs])
    erase_dead(graph)
    if unknown:
        graph.notes.append(
            f"{counted(len(unknown), 'layer', 'has', 'have')} no form in npuc and became "
            f"custom ops of the domain '{domain}', which somebody "
            f"has to provide before the network can run: {'; '.join(unknown[:6])}"
        )
    return graph


def _translated(
    ctx: ContextT,
    rules: Mapping[str, Rule[ContextT]],
    domain: str,
    describe: Callable[[ContextT], tuple[list[Value], Attributes]],
    unknown: list[str],
) -> list[Value]:
    rule = rules.get(ctx.layer.kind)
    mark = ctx.scope.mark()
    try:
        if rule is None:
            raise NoForm("no rule is registered for it")
        outcome = rule(ctx)
        return [outcome] if isinstance(outcome, Value) else list(outcome)
    except NoForm as error:
        ctx.builder.give_up(mark)
        unknown.append(f"{ctx.layer.label}: {error}")
        return _custom(ctx, domain, describe, str(error))
    except ShapeError as error:
        raise ctx.invalid(str(error)) from error
    except NpucError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
        # What a rule trips over is something in the layer that no valid model has.
        words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise ctx.invalid(f"it is malformed ({words})") from error


def _custom(
    ctx: ContextT,
    domain: str,
    describe: Callable[[ContextT], tuple[list[Value], Attributes]],
    reason: str,
) -> list[Value]:
    """A custom op; nothing is known of the shapes of its results."""
    values = []
    for name in ctx.layer.inputs:
        if name not in ctx.scope.values:
            raise ctx.invalid(f"its input '{name}' is not made before it")
        values.append(ctx.scope.values[name])
    more, attributes = describe(ctx)
    types = [tensor_type(None, "f32")] * len(ctx.layer.outputs)
    kind = "".join(c if c.isalnum() else "_" for c in ctx.layer.kind)[:100] or "Layer"
    return ctx.onnx(kind, [*values, *more], types, reason, domain, **attributes)


__all__ = ["build"]
