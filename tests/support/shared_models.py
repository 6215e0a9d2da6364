"""The models of the shared folder that the tests know, by name; what else lies there is reported as untested.

The folder belongs to others, who add to it when they like: a file that no test knows is a line in the summary of a run and
never a failure. Tests take their models from this list, not from the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from support.paths import SHARED

SHARED_MODELS = SHARED / "models"

KNOWN = (
    "caffe/lenet.caffemodel",
    "caffe/squeezenet_v1.1.prototxt",
    "caffe/ultraface_rfb_320.prototxt",
    "caffe/wechat_detect.prototxt",
    "caffe/wechat_sr.prototxt",
    "darknet/cfg_only/efficientnet_b0.cfg",
    "darknet/cfg_only/resnet50.cfg",
    "darknet/cfg_only/yolov2.cfg",
    "darknet/cfg_only/yolov3-spp.cfg",
    "darknet/cfg_only/yolov3-tiny.cfg",
    "darknet/cfg_only/yolov4.cfg",
    "darknet/mbv2_yolov3_nano_voc.cfg",
    "darknet/yoloface_50k.cfg",
    "keras/ad.h5",
    "keras/resnet8.h5",
    "keras/vww.h5",
    "onnx/cifar10_resnet20.onnx",
    "onnx/fastestdet.onnx",
    "onnx/mediapipe_face_landmark.onnx",
    "onnx/mnist.onnx",
    "onnx/mobilenet_v2.onnx",
    "onnx/ppocrv3_text_det.onnx",
    "onnx/shufflenet_v2_int8.onnx",
    "onnx/squeezenet_v1.1.onnx",
    "onnx/super_resolution.onnx",
    "onnx/ultraface_rfb_320.onnx",
    "onnx/yolox_nano.onnx",
    "onnx/yunet_n_320.onnx",
    "pytorch/cifar10_resnet20.torchscript.pt",
    "tensorflow/cnn_s.pb",
    "tensorflow/ds_cnn_s.pb",
    "tensorflow/kws_savedmodel",
    "tensorflow/lstm_s.pb",
    "tflite/ad_float.tflite",
    "tflite/ad_int8.tflite",
    "tflite/hello_world_int8.tflite",
    "tflite/kws_float.tflite",
    "tflite/kws_int8.tflite",
    "tflite/mediapipe_face_short_f16.tflite",
    "tflite/mediapipe_palm_lite_f16.tflite",
    "tflite/micro_speech_int8.tflite",
    "tflite/mobilenet_v1_025_128_uint8.tflite",
    "tflite/mobilenet_v2_224_ptq.tflite",
    "tflite/resnet8_float.tflite",
    "tflite/resnet8_int8.tflite",
    "tflite/vww_float.tflite",
    "tflite/vww_int8.tflite",
    "transformers/cifar10_vit.onnx",
)
"""Every model that a test reads, by its path below `models`; a folder is a SavedModel."""

_SUFFIXES = {".onnx", ".tflite", ".pt", ".pt2", ".pb", ".h5", ".keras", ".cfg", ".prototxt"}


def known(folders: Iterable[str], models: Path = SHARED_MODELS) -> list[Path]:
    """The known models of some folders that are there."""
    chosen = set(folders)
    paths = [models / name for name in KNOWN if name.partition("/")[0] in chosen]
    return [path for path in paths if path.exists()]


def untested(models: Path = SHARED_MODELS) -> list[str]:
    """The models that are there and that no test knows, by their paths below `models`."""
    return sorted(set(_models(models)) - set(KNOWN))


def report(names: Sequence[str]) -> list[str]:
    """The lines that say so in the summary of a test run; none where every model is tested."""
    if not names:
        return []
    return [
        f"no test reads {'this model' if len(names) == 1 else f'these {len(names)} models'} of ../shared/models "
        "(tests/support/shared_models.py lists the known ones):",
        *(f"  {name}" for name in names),
    ]


def _models(models: Path) -> list[str]:
    paths = []
    for path in models.rglob("*"):
        alone = path.suffix == ".caffemodel" and not path.with_suffix(".prototxt").exists()
        if path.name == "saved_model.pb":
            paths.append(path.parent)
        elif path.suffix in _SUFFIXES or alone:
            paths.append(path)
    return [path.relative_to(models).as_posix() for path in paths]
