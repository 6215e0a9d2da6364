"""ResNet-20 for CIFAR-10 as other tools train it: Brevitas' layers, and torchao's PT2E flow.

Both get the float network with its batch norms folded, the widths of bench_qat's cells at the same places (first and last weights
and the residual stream 8 bits), and are trained by the same loop. What is measured is what they deploy: Brevitas' QCDQ file in
ONNX Runtime, torchao's converted graph, whose tensors between layers are integers.

`make peers-qat` installs them in build/peers/qat; both are optional.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CALIBRATED = 20
"""Batches that ranges start from."""
BATCH = 256
WIDTHS = {"w2a4": (2, 4), "w4a4": (4, 4), "w4a8": (4, 8), "w8a8": (8, 8), "pow2": (8, 8)}
"""Bits of weights and of activations."""


class Plain:
    """Layers of the float network."""

    def conv(self, inputs: int, outputs: int, stride: int, first: bool = False) -> Any:
        """A convolution of 3 x 3."""
        return nn.Conv2d(inputs, outputs, 3, stride, 1)

    def linear(self, inputs: int, outputs: int) -> Any:
        """The last layer."""
        return nn.Linear(inputs, outputs)

    def relu(self, stream: bool = False) -> Any:
        """After a convolution, or on the residual stream."""
        return nn.ReLU()

    def identity(self, stream: bool = False) -> Any:
        """Where only the width changes."""
        return nn.Identity()

    def copy(self) -> Any:
        """What convolutions read of the residual stream."""
        return nn.Identity()


class Brevitas(Plain):
    """Layers of Brevitas: scales are learned, weights per channel (per tensor where they are powers of two)."""

    def __init__(self, cell: str) -> None:
        import brevitas.nn as qnn
        from brevitas.core.restrict_val import RestrictValueType
        from brevitas.inject.enum import ScalingImplType
        from brevitas.quant import fixed_point, scaled_int

        self.qnn, self.weight_bits, self.bits = qnn, *WIDTHS[cell]
        pow2 = cell == "pow2"
        home, suffix = (fixed_point, "FixedPoint") if pow2 else (scaled_int, "Float")
        learned: dict[str, Any] = {"scaling_impl_type": ScalingImplType.PARAMETER_FROM_STATS}
        logarithm = {} if pow2 else {"restrict_scaling_type": RestrictValueType.LOG_FP}
        short = {"weight": self.weight_bits < 8, "activation": self.bits < 8}
        per = "PerTensor" if pow2 else "PerChannel"

        def quantizer(name: str, mse: bool, **fields: Any) -> Any:
            base = getattr(home, f"{name}{suffix}{'MSE' if mse else ''}")
            # Brevitas' search of the least squared error gives NaN where scales are logarithms.
            return type(base)(f"Learned{name}", (base,), {**({} if mse else logarithm), **fields})

        # Two bits are -2 to 1, as in the cell of npuc: narrow ones would be -1, 0 and 1.
        self.weight = {
            bits: quantizer(
                f"Int8Weight{per}",
                short["weight"] and bits < 8,
                bit_width=bits,
                **learned,
                **({"narrow_range": False} if bits == 2 else {}),
            )
            for bits in {self.weight_bits, 8}
        }
        kinds = {False: "Uint8ActPerTensor", True: "Int8ActPerTensor"}
        self.act = {
            (signed, bits): quantizer(
                kinds[signed],
                False,
                bit_width=bits,
                collect_stats_steps=CALIBRATED,
                high_percentile_q=99.9 if bits < 8 else 99.999,
            )
            for signed in kinds
            for bits in {self.bits, 8}
        }

    def conv(self, inputs: int, outputs: int, stride: int, first: bool = False) -> Any:
        """With a bias of 32 bits."""
        from brevitas.quant import Int32Bias

        return self.qnn.QuantConv2d(
            inputs, outputs, 3, stride, 1, bias=True, weight_quant=self.weight[8 if first else self.weight_bits],
            bias_quant=Int32Bias, return_quant_tensor=False,
        )  # fmt: skip

    def linear(self, inputs: int, outputs: int) -> Any:
        """8 bits."""
        from brevitas.quant import Int32Bias

        return self.qnn.QuantLinear(
            inputs, outputs, bias=True, weight_quant=self.weight[8], bias_quant=Int32Bias, return_quant_tensor=False
        )  # fmt: skip

    def relu(self, stream: bool = False) -> Any:
        """Without a sign."""
        quantizer = self.act[False, 8 if stream else self.bits]
        return self.qnn.QuantReLU(act_quant=quantizer, return_quant_tensor=True)

    def identity(self, stream: bool = False) -> Any:
        """With a sign."""
        quantizer = self.act[True, 8 if stream else self.bits]
        return self.qnn.QuantIdentity(act_quant=quantizer, return_quant_tensor=True)

    def copy(self) -> Any:
        """Fewer bits of a tensor that has no negative values."""
        if self.bits == 8:
            return nn.Identity()
        return self.qnn.QuantIdentity(act_quant=self.act[False, self.bits], return_quant_tensor=True)


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, layers: Plain, inputs: int, outputs: int, stride: int, first: bool) -> None:
        super().__init__()
        self.copy = nn.Identity() if first else layers.copy()
        self.conv1, self.relu1 = layers.conv(inputs, outputs, stride), layers.relu()
        self.conv2, self.out2 = layers.conv(outputs, outputs, 1), layers.identity()
        self.relu2 = layers.relu(stream=True)
        self.stride, self.added = stride, (outputs - inputs) // 2

    def forward(self, x: Any) -> Any:
        """The residual stream after the block."""
        y = self.out2(self.conv2(self.relu1(self.conv1(self.copy(x)))))
        short = _value(x)
        if self.stride == 2:
            short = F.pad(short[:, :, ::2, ::2], (0, 0, 0, 0, self.added, self.added))
        return self.relu2(_value(y) + short)


class ResNet20(nn.Module):  # type: ignore[misc]
    """The network; weights come from npuc's import of the same file."""

    def __init__(self, layers: Plain, weights: list[tuple[Any, Any]] = ()) -> None:  # type: ignore[assignment]
        super().__init__()
        self.input = layers.identity(stream=True)
        self.conv, self.relu = layers.conv(3, 16, 1, first=True), layers.relu()
        blocks, inputs = [], 16
        for outputs in (16, 32, 64):
            for place in range(3):
                stride = 2 if inputs != outputs else 1
                blocks.append(Block(layers, inputs, outputs, stride, outputs == 16 and not place))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pooled = layers.identity(stream=True) if isinstance(layers, Brevitas) else nn.Identity()
        self.linear, self.output = layers.linear(64, 10), layers.identity(stream=True)
        convolutions = [self.conv, *(conv for block in blocks for conv in (block.conv1, block.conv2))]
        with torch.no_grad():
            for layer, (weight, bias) in zip([*convolutions, self.linear], weights, strict=bool(weights)):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))

    def forward(self, x: Any) -> Any:
        """Scores of the classes."""
        y = self.blocks(self.relu(self.conv(self.input(x))))
        y = self.pooled(F.avg_pool2d(_value(y), 8).flatten(1))
        return _value(self.output(self.linear(y)))


def _value(x: Any) -> Any:
    """The values of a tensor of Brevitas, which knows its scale, or a tensor."""
    return x.value if hasattr(x, "value") and not isinstance(x, torch.Tensor) else x


class OnDevice(nn.Module):  # type: ignore[misc]
    """A network that never waits for the GPU, so that its steps can be recorded; the flag of training is its own business."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        """The network's."""
        if x.device.type == "cpu":
            return self.network(x)
        with self.without_questions():
            return self.network(x)

    def without_questions(self) -> Any:
        """Where nothing is asked of the GPU."""
        return nullcontext()


class BrevitasOnDevice(OnDevice):
    """Brevitas: each layer asks the GPU for scales and zero points of a result whose type is then dropped."""

    def without_questions(self) -> Any:
        """Layers compute their values alone."""
        from brevitas.quant_tensor import int_torch_handler

        def values(layer: Any, x: Any, weight: Any, bias: Any, *args: Any, **more: Any) -> Any:
            return layer(_value(x), _value(weight), _value(bias), *args, **more)

        return patch.object(int_torch_handler, "quant_layer", values)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Copy the values: Brevitas puts new parameters in the place of those that an optimizer holds already."""
        own = self.state_dict(keep_vars=True)
        if own.keys() != state_dict.keys():
            raise RuntimeError("the state is of another network")
        with torch.no_grad():
            for name, tensor in state_dict.items():
                own[name].copy_(tensor)


def folded_weights(graph: Any) -> list[tuple[Any, Any]]:
    """Kernels and biases of the float network, in order."""
    layers = [op for op in graph.ops if op.name in ("top.conv", "top.matmul")]
    return [(graph.constant(op.operands[1]), graph.constant(op.bias)) for op in layers]


def brevitas_network(cell: str, graph: Any, data: Any) -> Any:
    """Brevitas' network with calibrated ranges."""
    network = BrevitasOnDevice(ResNet20(Brevitas(cell), folded_weights(graph)))
    network.train()
    with torch.no_grad():
        for at in range(CALIBRATED + 1):
            begin = at * BATCH % max(len(data) - BATCH, 1)
            network(torch.from_numpy(data.inputs[0][begin : begin + BATCH]))
    return network


def torchao_network(cell: str, graph: Any, data: Any) -> Any:
    """torchao's network: the quantizer of its x86 backend, with fewer steps where the cell has fewer bits."""
    from torchao.quantization.pt2e import (
        FusedMovingAvgObsFakeQuantize,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        disable_observer,
        enable_observer,
        move_exported_model_to_eval,
        move_exported_model_to_train,
    )
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import QuantizationSpec
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        QuantizationConfig,
        X86InductorQuantizer,
    )

    if cell == "pow2":
        raise RuntimeError("torchao has no scales of powers of two: use the cell w8a8")
    weight_bits, bits = WIDTHS[cell]
    network = ResNet20(Plain(), folded_weights(graph)).train()
    example = torch.from_numpy(data.inputs[0][:BATCH])
    shape = ({0: torch.export.Dim("batch", min=1, max=4096)},)
    exported = torch.export.export(network, (example,), dynamic_shapes=shape).module()

    def config(weight: int, activation: int) -> Any:
        act = QuantizationSpec(
            dtype=torch.uint8, quant_min=0, quant_max=2**activation - 1, qscheme=torch.per_tensor_affine,
            observer_or_fake_quant_ctr=FusedMovingAvgObsFakeQuantize.with_args(
                observer=MovingAverageMinMaxObserver, eps=2**-12
            ),
        )  # fmt: skip
        kernel = QuantizationSpec(
            dtype=torch.int8, quant_min=-(2 ** (weight - 1)), quant_max=2 ** (weight - 1) - 1,
            qscheme=torch.per_channel_symmetric, ch_axis=0,
            observer_or_fake_quant_ctr=FusedMovingAvgObsFakeQuantize.with_args(
                observer=MovingAveragePerChannelMinMaxObserver, eps=2**-12
            ),
        )  # fmt: skip
        return QuantizationConfig(act, act, kernel, None, True)

    quantizer = X86InductorQuantizer().set_global(config(weight_bits, bits))
    quantizer.set_module_name_qconfig("conv", config(8, 8))
    quantizer.set_module_name_qconfig("linear", config(8, 8))
    prepared = prepare_qat_pt2e(exported, quantizer)
    if not any(isinstance(part, FusedMovingAvgObsFakeQuantize) for part in prepared.modules()):
        raise RuntimeError(f"torchao quantizes nothing of the network that torch {torch.__version__} exports")

    class Switched(OnDevice):
        def train(self, mode: bool = True) -> Any:
            self.training = mode
            (move_exported_model_to_train if mode else move_exported_model_to_eval)(self.network)
            # Ranges would go on moving in eval mode.
            self.network.apply(enable_observer if mode else disable_observer)
            return self

    switched = Switched(prepared)
    switched.train()
    with torch.no_grad():
        for at in range(CALIBRATED):
            begin = at * BATCH % max(len(data) - BATCH, 1)
            switched(torch.from_numpy(data.inputs[0][begin : begin + BATCH]))
    return switched


NETWORKS = {"brevitas": brevitas_network, "torchao": torchao_network}


def deployed(tool: str, network: Any, images: Any, file: Path) -> Any:
    """Scores of the integers that a trained network becomes; what is written begins with `file`."""
    return (_brevitas_deployed if tool == "brevitas" else _torchao_deployed)(network, images, file)


def _brevitas_deployed(network: Any, images: Any, file: Path) -> Any:
    import onnxruntime
    from brevitas.export import export_onnx_qcdq

    path = file.with_suffix(".onnx")
    plain = network.network.eval().cpu()
    export_onnx_qcdq(plain, torch.from_numpy(images[:1]), str(path), dynamo=False, opset_version=17)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: image[None]})[0] for image in images])


def _torchao_deployed(network: Any, images: Any, file: Path) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    converted = convert_pt2e(network.eval().cpu().network)
    with torch.no_grad():
        return np.concatenate(
            [converted(torch.from_numpy(images[at : at + 100])).numpy() for at in range(0, len(images), 100)]
        )
