"""NNCF as a peer: quantizes an ONNX file with prepared samples, default settings. Runs in a venv of its own.

python benchmarks/peer_nncf.py MODEL.onnx SAMPLES.npy RESULT.onnx
"""

import logging
import sys

import nncf
import numpy as np
import onnx


def main() -> None:
    """Quantize."""
    source, samples, target = sys.argv[1:]
    logging.disable(logging.WARNING)
    model = onnx.load(source)
    name = model.graph.input[0].name
    data = np.load(samples, mmap_mode="r")
    dataset = nncf.Dataset(list(range(len(data))), lambda index: {name: np.array(data[index : index + 1])})
    onnx.save(nncf.quantize(model, dataset, subset_size=len(data)), target)


if __name__ == "__main__":
    main()
