"""A program as a user of Compass writes it: plugins and a cfg file, aipubuild, and the program run on raw images.

Arguments: the float model, a file with the arrays `image` and `label`. It prints the accuracy that the optimizer reports for the
float and the quantized model, and how many of the first images the built program gets right.
"""

import re
import subprocess
import sys

import numpy as np

PLUGINS = """
import numpy as np
from torch.utils.data import Dataset
from AIPUBuilder.Optimizer.framework import OptBaseMetric, PluginType, register_plugin
from AIPUBuilder.Optimizer.logger import OPT_INFO

@register_plugin(PluginType.Dataset, "1.0")
class DigitsDataset(Dataset):
    def __init__(self, data_file, label_file=None):
        self.data = np.load(data_file)
        self.label = None if label_file is None else np.load(label_file)
        OPT_INFO(f"{len(self.data)} digits")

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return [[self.data[index]], float("-inf") if self.label is None else self.label[index]]

@register_plugin(PluginType.Metric, "1.0")
class DigitsMetric(OptBaseMetric):
    def __init__(self, k="1"):
        self.k = int(k)
        self.reset()

    def reset(self):
        self.right = self.total = 0

    def __call__(self, pred, target):
        best = pred[0].reshape(pred[0].shape[0], -1).topk(self.k).indices
        self.right += int((best == target.reshape(-1, 1)).any(1).sum())
        self.total += target.numel()

    def compute(self):
        return self.right / self.total

    def report(self):
        return f"{self.right} of {self.total} digits"
"""
CFG = """
[Common]
mode = build

[Parser]
model_type = onnx
model_name = digits
model_domain = image_classification
detection_postprocess =
input_model = {model}
input = image
input_shape = [1, 1, 8, 8]
output = logits

[Optimizer]
dataset = DigitsDataset
calibration_data = calib.npy
calibration_batch_size = 1
metric = DigitsMetric(1)
data = data.npy
label = label.npy
output_dir = ./out

[GBuilder]
outputs = aipu.bin
target = X2_1204
profile = True
"""


def value(text, layer, key):
    """A value of a layer of an IR."""
    block = next(part for part in text.split("\n\n") if f"layer_name={layer}\n" in part)
    return re.search(rf"^{key}=\[?([^\]\n]*)", block, re.M)[1]


def main(model, samples):
    arrays = np.load(samples)
    images, labels = arrays["image"], arrays["label"]
    np.save("calib.npy", images[:50])
    np.save("data.npy", images)
    np.save("label.npy", labels)
    for name, text in (("aipubt_digits.py", PLUGINS), ("digits.cfg", CFG.format(model=model))):
        with open(name, "w") as out:
            out.write(text)
    told = subprocess.run(["aipubuild", "digits.cfg"], check=True, capture_output=True, text=True).stdout
    figures = dict(re.findall(r"(float|quantized) DigitsMetric\(1\): (\S+)", told))
    with open("out/digits.txt") as handle:
        ir = handle.read()
    scale, zero = float(value(ir, "image", "layer_top_scale")), int(value(ir, "image", "layer_top_zp"))
    kind = np.dtype(value(ir, "image", "layer_top_type"))
    limits = np.iinfo(kind)
    right = 0
    for image, label in zip(images[:3], labels[:3], strict=True):
        np.clip(np.round(image * scale) - zero, limits.min, limits.max).astype(kind).tofile("image.bin")
        subprocess.run(["aipudumper", "aipu.bin", "-i", "image.bin", "-o", "scores.bin"], check=True)
        scores = np.fromfile("scores.bin", np.dtype(value(ir, "logits", "layer_top_type")))
        right += int(scores.argmax() == label)
    print(f"float {figures['float']} npu {figures['quantized']} first {right} of 3")


if __name__ == "__main__":
    main(*sys.argv[1:])
