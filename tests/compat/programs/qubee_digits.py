"""A program as a user of qubee writes it: prepare calibration data, compile a model, compare float, integers and the program.

Arguments: the float model, a file with the arrays `image` and `label`. It prints the accuracy of all three.
"""

import os
import sys

import numpy as np
import qubee
from PIL import Image
from qubee import Model_Dict, make_calib_man, mxq_compile


def save_images(images, folder):
    """Digits as the photos that a data set would have."""
    os.makedirs(folder, exist_ok=True)
    for i, image in enumerate(images):
        pixels = np.round(image[0] / image.max() * 255).astype(np.uint8)
        Image.fromarray(pixels).save(os.path.join(folder, f"{i:04d}.png"))


def pre_process(img_path, scale):
    img = Image.open(img_path)
    out = np.asarray(img, np.float32) / 255.0 * scale
    return out[:, :, None]  # height x width x channels


def accuracy(scores, labels):
    return float((np.asarray(scores).argmax(1) == labels).mean())


def main(model, samples):
    data = np.load(samples)
    images, labels = data["image"], data["label"]
    save_images(images[:50], "photos")
    calib_txt = make_calib_man(
        pre_ftn=lambda path: pre_process(path, images.max()),
        data_dir="photos",
        save_dir="calibration",
        save_name="digits",
        max_size=40,
    )
    with open(calib_txt) as lines:
        print("qubee", qubee.__version__, "calibrates on", len(lines.readlines()), "arrays")

    mxq_compile(
        model=model,
        calib_data_path="calibration/digits",
        save_path="digits.mxq",
        backend="onnx",
        quantize_method="Percentile",
        quantize_percentile=0.9999,
        is_quant_ch=True,
        save_sample=True,
    )

    model_dict = Model_Dict(model, backend="onnx")
    (exact,) = model_dict.inference(images)
    model_dict.compile(calib_txt, "digits_dict.mxq", is_quant_ch=True)
    (integers,) = model_dict.inference_int8(images)
    with open("digits.mxq", "rb") as first, open("digits_dict.mxq", "rb") as second:
        print(
            "files differ in", sum(a != b for a, b in zip(first.read(), second.read(), strict=True)), "bytes"
        )
    print(f"operations {model_dict.cal_ops()}, outputs {model_dict.output_name_list}")
    print(f"float {accuracy(exact, labels):.4f} int8 {accuracy(integers, labels):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
