"""AIMET-ONNX as a peer: quantizes an ONNX file with prepared samples. Runs in a venv of its own.

Weights have a scale each channel (its `default_config_per_channel`). `aimet` takes the ranges of least squared error
(tf_enhanced), `aimet-minmax` the whole ones; `aimet-seqmse` and `aimet-adaround` choose the weights' ranges or roundings by the
layers' outputs. Equalization is left out: it turns relu6 into relu, and computes something else then.

python benchmarks/peer_aimet.py MODEL.onnx SAMPLES.npy RESULT.onnx SCHEME VARIANT
"""

import sys
from pathlib import Path

import aimet_onnx
import numpy as np
import onnx
from aimet_onnx.common import quantsim_config

ITERATIONS = 1000
"""Of AdaRound, a layer; it recommends ten times as many, which takes hours here."""
CANDIDATES = 20
"""Ranges that SeqMSE tries a channel, its default."""


def main() -> None:
    """Quantize."""
    source, samples, target, scheme, variant = sys.argv[1:]
    model = onnx.load(source)
    name = model.graph.input[0].name
    data = [{name: np.array(sample[None])} for sample in np.load(samples, mmap_mode="r")]
    sim = aimet_onnx.QuantizationSimModel(
        model,
        param_type=aimet_onnx.int4 if scheme == "w4a8" else aimet_onnx.int8,
        activation_type=aimet_onnx.int8,
        quant_scheme="min_max" if variant in ("aimet-minmax", "aimet-seqmse") else "tf_enhanced",
        config_file=str(Path(quantsim_config.__file__).with_name("default_config_per_channel.json")),
    )
    if variant == "aimet-seqmse":
        aimet_onnx.apply_seq_mse(sim, data, num_candidates=CANDIDATES)
    if variant == "aimet-adaround":
        aimet_onnx.apply_adaround(sim, data, ITERATIONS)
    sim.compute_encodings(data)
    quantized = sim.to_onnx_qdq(prequantize_constants=True)
    onnx.save(quantized, target)


if __name__ == "__main__":
    main()
