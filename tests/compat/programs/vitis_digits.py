"""A program as a user of Vitis AI writes it: quantize an ONNX model, compile it, run it, count right answers.

Arguments: the float model, a file with the arrays `image` and `label`. It prints the accuracy of the float model and of the DPU.
"""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import vai_q_onnx
import vart
import xir


class DigitsReader(vai_q_onnx.CalibrationDataReader):
    """Gives calibration images, one at a time."""

    def __init__(self, name, images):
        self.batches = iter([{name: images[i : i + 1]} for i in range(len(images))])

    def get_next(self):
        return next(self.batches, None)


def float_accuracy(model, images, labels):
    session = onnxruntime.InferenceSession(model)
    name = session.get_inputs()[0].name
    hits = sum(
        int(session.run(None, {name: images[i : i + 1]})[0].argmax()) == labels[i] for i in range(len(images))
    )
    return name, hits / len(images)


def dpu_subgraph(graph):
    children = graph.get_root_subgraph().toposort_child_subgraph()
    return next(c for c in children if c.has_attr("device") and c.get_attr("device").upper() == "DPU")


def dpu_accuracy(xmodel, images, labels):
    runner = vart.Runner.create_runner(dpu_subgraph(xir.Graph.deserialize(xmodel)), "run")
    tensor_in, tensor_out = runner.get_input_tensors()[0], runner.get_output_tensors()[0]
    scale = 2 ** tensor_in.get_attr("fix_point")
    image = np.empty(tensor_in.dims, dtype=np.int8, order="C")
    scores = np.empty(tensor_out.dims, dtype=np.int8, order="C")
    hits = 0
    for i in range(len(images)):
        pixels = images[i : i + 1].transpose(0, 2, 3, 1)
        image[...] = np.clip(np.floor(pixels * scale + 0.5), -128, 127)
        job = runner.execute_async([image], [scores])
        runner.wait(job)
        hits += int(scores.argmax()) == labels[i]
    return hits / len(images)


def main(model, samples):
    data = np.load(samples)
    images, labels = data["image"], data["label"]
    name, before = float_accuracy(model, images, labels)
    vai_q_onnx.quantize_static(model, "digits_int.onnx", DigitsReader(name, images[:50]))
    with open("arch.json", "w") as out:
        json.dump({"target": "DPUCZDX8G_ISA1_B4096"}, out)
    command = ["vai_c_xir", "-x", "digits_int.onnx", "-a", "arch.json", "-o", "compiled", "-n", "digits"]
    subprocess.run(command, check=True)
    print(f"float {before:.4f} dpu {dpu_accuracy('compiled/digits.xmodel', images, labels):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
