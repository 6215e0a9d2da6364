"""Quark as a peer: quantizes an ONNX file with prepared samples. Runs in a venv of its own.

`w8a8` is its A8W8 with a scale each channel of the weights: `quark` with symmetric activations as it has them,
`quark-affine` with affine ones. `pow2` is its XINT8: `quark` plain, `quark-equalized` with cross-layer equalization,
`quark-adaround` with learned rounding as its preset XINT8_ADAROUND has it. It has no weights of 4 bits for ONNX.

python benchmarks/peer_quark.py MODEL.onnx SAMPLES.npy RESULT.onnx SCHEME VARIANT
"""

import sys

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader
from quark.onnx import (
    A8W8_QCONFIG,
    XINT8_ADAROUND_QCONFIG,
    XINT8_QCONFIG,
    CLEConfig,
    Int8Spec,
    ModelQuantizer,
    QConfig,
    QLayerConfig,
    QuantGranularity,
    UInt8Spec,
    XInt8Spec,
)


class Reader(CalibrationDataReader):
    """The samples, one at a time."""

    def __init__(self, name: str, path: str) -> None:
        self._name, self._data = name, np.load(path, mmap_mode="r")
        self.rewind()

    def rewind(self) -> None:
        """From the first again."""
        self._left = iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """One sample, or None at the end."""
        sample = next(self._left, None)
        return None if sample is None else {self._name: np.array(sample[None])}


def config(scheme: str, variant: str) -> QConfig:
    """What is asked for."""
    if scheme == "pow2":
        if variant == "quark-adaround":
            return XINT8_ADAROUND_QCONFIG
        if variant == "quark-equalized":
            layers = QLayerConfig(activation=XInt8Spec(), weight=XInt8Spec())
            extra = XINT8_QCONFIG.extra_options
            return QConfig(global_config=layers, algo_config=[CLEConfig()], extra_options=extra)
        return XINT8_QCONFIG
    weight = Int8Spec(quant_granularity=QuantGranularity.Channel)
    layers = QLayerConfig(activation=UInt8Spec() if variant == "quark-affine" else Int8Spec(), weight=weight)
    return QConfig(global_config=layers, extra_options=A8W8_QCONFIG.extra_options)


def main() -> None:
    """Quantize."""
    source, samples, target, scheme, variant = sys.argv[1:]
    name = onnx.load(source, load_external_data=False).graph.input[0].name
    ModelQuantizer(config(scheme, variant)).quantize_model(source, target, Reader(name, samples))


if __name__ == "__main__":
    main()
