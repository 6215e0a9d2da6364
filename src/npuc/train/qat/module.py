"""The module of quantization-aware training.

In training mode it is the float network with fake quantization where the integer network rounds: its values are those of the
integers up to float rounding, and gradients pass (`quantizers`). In eval mode it **is** the integer network: `export` builds it
with npuc's own quantizer from the parameters as they are, and `exact` computes its integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from npuc.arithmetic.kinds import Scales
from npuc.ir import Graph, Value, shape_of
from npuc.ir.dtypes import QuantType
from npuc.quant.adaquant.lowering import LearnedLayer, lower_learned
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer
from npuc.quant.parameters import output_limits, range_of
from npuc.quant.scheme import Scheme
from npuc.train.network import TrainableNetwork, before_softmax
from npuc.train.qat.exact import ExactNetwork
from npuc.train.qat.options import QatOptions
from npuc.train.qat.quantizers import LearnedScale, fake_quantize, rounded
from npuc.train.qat.rounding import LearnedRounding
from npuc.train.qat.state import plan_state, with_state


@dataclass(frozen=True)
class RangedTensor:
    """A range of the integer network that is learned: the tensors that have its type."""

    name: str
    """The tensor whose range it is."""
    values: tuple[Value, ...]
    kind: QuantType
    """The type at the begin."""
    scheme: Scheme
    learns: bool

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer."""
        return output_limits(self.kind, narrow=self.scheme.narrow_activations)

    @property
    def elements(self) -> int:
        """Elements of a sample."""
        return int(np.prod(shape_of(self.values[0])[1:]))

    @property
    def steps(self) -> int:
        """Steps from zero to the end of the range that is further."""
        low, high = self.limits
        return max(high - self.kind.zero_point, self.kind.zero_point - low)


@dataclass(frozen=True)
class QatPlan:
    """What does not change while a network is trained; copies of a module share it."""

    source: Graph
    """The float network in canonical form."""
    scheme_of: LayerSchemes
    ranges: Mapping[str, Any]
    """The calibrated ranges of all tensors."""
    layers: tuple[IntegerLayer, ...]
    tensors: tuple[RangedTensor, ...]
    fixed: Mapping[Value, QuantType] = field(default_factory=dict)
    """The types of tensors that no range determines."""

    def __deepcopy__(self, memo: Any) -> QatPlan:
        """Plans are values."""
        return self


class QatModule(torch.nn.Module):  # type: ignore[misc]
    """A network that is trained as it will run; see the module's docstring."""

    def __init__(self, plan: QatPlan, options: QatOptions) -> None:
        super().__init__()
        self.plan, self.options = plan, options
        self.network = TrainableNetwork(plan.source)
        self.weight_scales = torch.nn.ModuleList(
            LearnedScale(
                np.asarray(layer.scale),
                layer.weight.size // max(layer.scale.size, 1),
                layer.highest,
                power=layer.scheme.weight_scales is Scales.POWER_OF_TWO,
                learns=options.learn_scales and not options.learn_rounding,
            )
            for layer in plan.layers
        )
        self.roundings = torch.nn.ModuleList(self._roundings() if options.learn_rounding else [])
        self.activation_scales = torch.nn.ModuleList(
            LearnedScale(
                tensor.kind.scale,
                tensor.elements,
                tensor.steps,
                power=tensor.scheme.activation_scales is Scales.POWER_OF_TWO,
                learns=tensor.learns and options.learn_scales,
            )
            for tensor in plan.tensors
        )
        self._scale_of = {value: i for i, tensor in enumerate(plan.tensors) for value in tensor.values}
        self._exact: tuple[Any, ExactNetwork] | None = None
        self._together: bool | None = None
        self.awaits_data = False
        """Whether its ranges come from samples without meaning, and those of the first call are to replace them."""

    def _roundings(self) -> Iterator[LearnedRounding]:
        """The learned rounding of each layer, whose weights do not learn then."""
        for layer, scale in zip(self.plan.layers, self.weight_scales, strict=True):
            weight = self._weight(layer).requires_grad_(False)
            yield LearnedRounding(weight, scale(), layer.lowest, layer.highest)

    def _weight(self, layer: IntegerLayer) -> Any:
        """The float weights of a layer."""
        return self.network.body.weight(self.network.body.refs[layer.float_op.operands[1]])

    @property
    def batch_size(self) -> int | None:
        """The only number of samples that it takes at once, if the network was imported for more than one."""
        return self.network.batch_size

    @property
    def ends_with_softmax(self) -> bool:
        """Whether the first output has a softmax behind its logits."""
        return self.network.ends_with_softmax

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of its inputs, in order; the first axis has the samples."""
        return self.network.input_shapes

    def anneal(self, progress: float) -> None:
        """Tell how much of the training is done, from 0 to 1: learned rounding sharpens. `fit` calls it before each step."""
        for rounding in self.roundings:
            rounding.anneal(progress)

    # Training mode

    def forward(self, *inputs: Any) -> Any:
        """The output, or a tuple of the outputs in order: fake-quantized in training mode, the deployed integers in eval mode."""
        if not self.training:
            return self._deployed(inputs)
        outputs = self._trained(inputs, [port.value for port in self.plan.source.outputs])
        return outputs[0] if len(outputs) == 1 else outputs

    def logits(self, *inputs: Any) -> Any:
        """What a loss is computed of: the first output, fake-quantized, without the softmax that it may end with."""
        return self._trained(inputs, [before_softmax(self.plan.source)])[0]

    def _trained(self, inputs: tuple[Any, ...], ports: Sequence[Value]) -> tuple[Any, ...]:
        body = self.network.body
        scales = [scale() for scale in self.activation_scales]

        def after(value: Value, tensor: Any) -> Any:
            return self._quantized(value, tensor, scales)

        values = {
            port.value: after(port.value, x) for port, x in zip(self.plan.source.inputs, inputs, strict=True)
        }
        known = body.run(body.steps, values, ports, weights=self._weights(scales), after=after)
        return tuple(known[value] for value in ports)

    def _quantized(self, value: Value, tensor: Any, scales: list[Any]) -> Any:
        index, kind = self._scale_of.get(value), self.plan.fixed.get(value)
        if index is None and kind is None:
            return tensor
        # Under autocast tensors may have 8 bits of precision, too few for the integers of a range.
        tensor = tensor.float()
        if index is not None:
            place = self.plan.tensors[index]
            return fake_quantize(tensor, scales[index], place.kind.zero_point, *place.limits)
        assert kind is not None
        scale = torch.full((), kind.scale, dtype=tensor.dtype, device=tensor.device)
        return fake_quantize(tensor, scale, kind.zero_point, *kind.dtype.limits)

    def _weights(self, activation_scales: list[Any]) -> dict[str, Any]:
        """The weights and biases of the layers as the integer network has them."""
        refs, weights = self.network.body.refs, {}
        for i, (layer, learned) in enumerate(zip(self.plan.layers, self.weight_scales, strict=True)):
            op = layer.float_op
            scale, ref = learned(), refs[op.operands[1]]
            weight = self._weight(layer)
            if self.options.weight_noise and not self.roundings:
                # Some weights see the error of a random rounding instead of that of the nearest (Quant-Noise).
                noisy = torch.rand_like(weight) < self.options.weight_noise
                weight = torch.where(noisy, weight + (torch.rand_like(weight) - 0.5) * scale.detach(), weight)
            weights[ref] = (
                self.roundings[i](weight, scale)
                if self.roundings
                else fake_quantize(weight, scale, 0, layer.lowest, layer.highest)
            )
            if op.bias is not None:
                bias = self.network.body.weight(refs[op.bias])
                index = self._scale_of.get(op.operands[0])
                step = self._input_scale(layer) if index is None else activation_scales[index].detach()
                unit = scale.detach().reshape(-1) * step
                weights[refs[op.bias]] = rounded(bias / unit) * unit
        return weights

    def _input_scale(self, layer: IntegerLayer) -> float:
        """The scale of an operand that is not learned."""
        return self.plan.fixed.get(layer.float_op.operands[0], layer.x).scale

    # Eval mode

    def _deployed(self, inputs: tuple[Any, ...]) -> Any:
        state = tuple((p._version, p.data_ptr(), str(p.device)) for p in self.parameters())
        if self._exact is None or self._exact[0] != state:
            network = ExactNetwork(self.export(), inputs[0].device).eval()
            # Not a submodule: its buffers are no state of this one.
            object.__setattr__(self, "_exact", (state, network))
        assert self._exact is not None
        with torch.no_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            outputs, self._together = self._exact[1].outputs(
                [x.to(torch.float32) if x.is_floating_point() else x for x in inputs], self._together
            )
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        """The module without the integer network that eval mode keeps."""
        return {**self.__dict__, "_exact": None}

    def get_extra_state(self) -> Any:
        """What calibration has fixed: a part of `state_dict`, see `state`."""
        return plan_state(self.plan)

    def set_extra_state(self, state: Any) -> None:
        """Take over what calibration had fixed in another module of the same network; an error if that is impossible."""
        self._take(with_state(self.plan, state))

    def set_plan(self, plan: QatPlan) -> None:
        """Begin with the types and scales of another calibration of the same network."""
        self._take(plan)
        layers = zip(self.plan.layers, self.weight_scales, strict=True)
        tensors = zip(self.plan.tensors, self.activation_scales, strict=True)
        for scale, value in [
            *((learned, np.asarray(layer.scale)) for layer, learned in layers),
            *((learned, tensor.kind.scale) for tensor, learned in tensors),
        ]:
            scale.begin_at(value)

    def _take(self, plan: QatPlan) -> None:
        self.plan = plan
        self._scale_of = {value: i for i, tensor in enumerate(plan.tensors) for value in tensor.values}
        for tensor, scale in zip(plan.tensors, self.activation_scales, strict=True):
            scale.set_size(tensor.elements, tensor.steps)
        self._exact, self.awaits_data = None, False

    # What it becomes

    def export(self) -> Graph:
        """The integer network with the parameters as they are: `npuc.flow.compile_network` makes a program of it."""
        weights = self.network.weight_store()
        source = Graph(self.plan.source.module, weights)
        learned = {}
        for i, (layer, scale) in enumerate(zip(self.plan.layers, self.weight_scales, strict=True)):
            op = layer.float_op
            bias = None if op.bias is None else source.constant(op.bias)
            real = source.constant(op.operands[1])
            assert real is not None
            if self.roundings:
                real = _array(self.roundings[i].deployed(self._weight(layer), scale()))
            learned[op] = LearnedLayer(
                real.astype(np.float64),
                _array(scale()).reshape(-1),
                None if bias is None else bias.astype(np.float64),
            )
        quantized = lower_learned(source, self.ranges(), self.plan.scheme_of, learned)
        quantized.verify()
        return quantized

    def ranges(self) -> dict[str, Any]:
        """The ranges of all tensors as they are now, by name."""
        ranges = dict(self.plan.ranges)
        for tensor, scale in zip(self.plan.tensors, self.activation_scales, strict=True):
            now = float(np.float32(float(scale().detach())))
            kind = QuantType.of(tensor.kind.dtype, now, tensor.kind.zero_point)
            ranges[tensor.name] = range_of(kind, tensor.scheme)
        return ranges

    def to_float(self) -> Graph:
        """The float network with the trained weights."""
        return self.network.to_graph()

    def scale_parameters(self) -> list[Any]:
        """The scales that are learned; they take larger rates than weights."""
        parts = (self.weight_scales, self.activation_scales)
        return [p for part in parts for p in part.parameters() if p.requires_grad]

    def weight_parameters(self) -> list[Any]:
        """The weights and biases that are learned."""
        scales = {id(p) for p in self.scale_parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in scales]

    def parameter_groups(self, weight_decay: float = 0.0) -> list[dict[str, Any]]:
        """Groups for an optimizer: weights decay; biases, scales and learned roundings do not."""
        weights = self.weight_parameters()
        return [
            {"params": [p for p in weights if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in weights if p.dim() <= 1], "weight_decay": 0.0},
            {
                "params": self.scale_parameters(),
                "weight_decay": 0.0,
                "lr_factor": self.options.scale_rate,
            },
        ]


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy().astype(np.float64)
