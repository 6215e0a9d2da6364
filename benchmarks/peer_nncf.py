"""NNCF as a peer: quantizes an ONNX file with prepared samples. Runs in a venv of its own.

`nncf` has its default settings (fast bias correction), `nncf-exact` the slower bias correction; 8 bits is all that its ONNX
backend has.

python benchmarks/peer_nncf.py MODEL.onnx SAMPLES.npy RESULT.onnx SCHEME VARIANT
"""

import logging
import sys

import nncf
import numpy as np
import onnx


def main() -> None:
    """Quantize."""
    source, samples, target, _, variant = sys.argv[1:]
    logging.disable(logging.WARNING)
    model = onnx.load(source)
    name = model.graph.input[0].name
    data = np.load(samples, mmap_mode="r")
    dataset = nncf.Dataset(list(range(len(data))), lambda index: {name: np.array(data[index : index + 1])})
    quantized = nncf.quantize(
        model, dataset, subset_size=len(data), fast_bias_correction=variant != "nncf-exact"
    )
    onnx.save(quantized, target)


if __name__ == "__main__":
    main()
