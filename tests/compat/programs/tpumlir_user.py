"""A program as a user of TPU-MLIR writes it: a classifier from its ONNX file to INT8, checked, evaluated and used.

    python tpumlir_user.py MODEL.onnx CALIBRATION_FOLDER IMAGE_FOLDER LABELS

It knows nothing of npuc: its commands are on PATH, and the module transform.TpuLang is on PYTHONPATH.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import transform.TpuLang as tpul

MEAN, SCALE = "123.675,116.28,103.53", "0.01712475,0.0175070,0.01742919"
CHIP = "bm1684x"


def run(*words):
    """Run a command of the toolchain; its output if it succeeds."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words[0]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def convert(name, model, image):
    """The model as an .mlir file, compared with the original."""
    run("model_transform.py", "--model_name", name, "--model_def", model, "--input_shapes", "[[1,3,32,32]]",
        "--mean", MEAN, "--scale", SCALE, "--pixel_format", "rgb", "--test_input", image,
        "--test_result", f"{name}_top_outputs.npz", "--mlir", f"{name}.mlir")  # fmt: skip
    return f"{name}.mlir"


def deploy(name, mlir, table, quantize, tolerance):
    """A compiled model, every op of which is within the tolerance of float."""
    bmodel = f"{name}_{CHIP}_{quantize.lower()}.bmodel"
    words = ["--calibration_table", table] if quantize == "INT8" else []
    run("model_deploy.py", "--mlir", mlir, "--quantize", quantize, "--chip", CHIP, *words,
        "--test_input", f"{name}_in_f32.npz", "--test_reference", f"{name}_top_outputs.npz",
        "--tolerance", tolerance, "--model", bmodel)  # fmt: skip
    return bmodel


def top1(mlir, images, labels):
    """The share of images whose best class is right."""
    words = [
        "--dataset",
        images,
        "--label_file",
        labels,
        "--dataset_type",
        "imagenet",
        "--postprocess_type",
        "topx",
    ]
    line = run("model_eval.py", "--model_file", mlir, *words)
    return float(line.rpartition("top1:")[2].split(",")[0])


def classes(bmodel, file):
    """The best class of the samples in an .npz file, by the compiled model."""
    run("model_runner.py", "--input", file, "--model", bmodel, "--output", "scores.npz")
    scores = np.load("scores.npz")
    return scores[scores.files[0]].argmax(axis=-1)


def head():
    """A small network of one's own, built op by op."""
    tpul.init("BM1684X")
    x = tpul.Tensor(shape=[1, 10], data=np.linspace(-1, 1, 10))
    y = tpul.softmax(tpul.mul(x, 2.0), 1, out_name="probabilities")
    tpul.compile("head", [x], [y])
    tpul.deinit()
    return np.load("head_top_outputs.npz")["probabilities"]


def main(model, calibration, images, labels):
    """The whole way."""
    image = sorted(Path(calibration).iterdir())[0]
    mlir = convert("net", model, image)
    run(
        "run_calibration.py",
        mlir,
        "--dataset",
        calibration,
        "--input_num",
        20,
        "--tune_num",
        2,
        "-o",
        "net_table",
    )
    int8, half = (
        deploy("net", mlir, "net_table", "INT8", "0.95,0.80"),
        deploy("net", mlir, None, "F16", "0.99,0.95"),
    )
    same = classes(int8, "net_in_f32.npz") == classes(half, "net_in_f32.npz")
    print("int8 and f16 agree:", bool(same.all()))
    print("probabilities sum to", round(float(head().sum()), 3))
    print("float top1:", top1(mlir, images, labels))
    print("int8 top1:", top1(f"net_{CHIP}_int8_sym_tpu.mlir", images, labels))


if __name__ == "__main__":
    main(*sys.argv[1:])
