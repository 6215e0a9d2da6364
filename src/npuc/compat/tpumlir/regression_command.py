"""`run_model.py`: one model of a regression, from its file to compiled models in several types, as a config file says.

    # resnet.cfg
    model_path=${REGRESSION_PATH}/model/resnet.onnx
    dataset=${REGRESSION_PATH}/dataset/images
    test_input=${REGRESSION_PATH}/image/cat.jpg
    input_shapes=[[1,3,224,224]]
    mean=123.675,116.28,103.53
    int8_sym_tolerance=0.97,0.80

Files are looked for in the folder itself and in `config` of REGRESSION_PATH; results go to `NAME_CHIP`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.compat.tpumlir import calibration_command, deploy_command, transform_command
from npuc.compat.tpumlir.chips import add_chip, chip_named
from npuc.errors import FileFormatError, FileMissingError, NpucError, UsageError
from npuc.files import make_folder, read_short
from npuc.words import counted

_MAX_FILE = 1 << 16
_TRANSFORM = (
    "input_shapes", "resize_dims", "mean", "scale", "pixel_format", "channel_format", "output_names", "excepts", "model_data",
    "pad_value", "pad_type", "add_postprocess", "tolerance",
)  # fmt: skip
_PATHS = (
    "model_path",
    "model_def",
    "model_data",
    "dataset",
    "test_input",
    "data_list",
    "calibration_table",
    "quantize_table",
    "label_file",
    "coco_annotation",
    "eval_dataset",
)
EVALUATION = ("dataset_type", "postprocess_type")
"""What a config says about the measurement of accuracy."""
_OTHERS = (
    "debug_cmd", "input_num", "tune_num", "keep_aspect_ratio", "use_quantize_table", "bm1684x_excepts", *EVALUATION,
)  # fmt: skip
_TYPES = ("f32", "f16", "bf16", "int8_sym", "int8_asym")


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("run_model.py", "Convert, calibrate and compile a model as its config file says.")
    own.add("model", help="the name of the model: its config file is NAME.cfg")
    add_chip(own)
    own.add("--mode", default="all", help="all, or one of f32, f16, bf16, int8_sym, int8_asym")
    own.add_ignored("--do_post_handle", "outputs are compared, not drawn", action="store_true")
    own.add_ignored("--test_type", "every model takes the same way")
    own.add_ignored("--num_core", "the chip has one core")
    return own


def main(arguments: list[str]) -> int:
    """Run the command; 0 if every type is within its tolerance."""
    options = parser().parse(arguments)
    chip = options.chip or "bm1684x"
    chip_named(chip, "run_model.py")
    config = read_config(config_of(options.model))
    model = config.get("model_path") or config.get("model_def")
    if not model:
        raise UsageError(f"the config of '{options.model}' has no model_path")
    modes = _modes(config, options.mode)
    failed = []
    with chdir(make_folder(Path(f"{options.model}_{chip.lower()}"))):
        if transform_command.main(transform_arguments(options.model, model, config)):
            failed.append("transform")
        if any(mode.startswith("int8") for mode in modes) and "calibration_table" not in config:
            calibration_command.main(calibration_arguments(options.model, config))
        for mode in modes:
            if deploy_command.main(deploy_arguments(options.model, chip, mode, config)):
                failed.append(mode)
    for mode in ("transform", *modes):
        print(f"{options.model} {mode}: {'FAILED' if mode in failed else 'PASSED'}")
    return 1 if failed else 0


def run_all(arguments: list[str]) -> int:
    """`run_all.sh`: `run_model.py` for every config of the regression; 0 if all pass."""
    own = VendorParser("run_all.sh", "Convert, calibrate and compile every model that has a config file.")
    add_chip(own)
    options = own.parse(arguments)
    words = ["--chip", options.chip] if options.chip else []
    failed = []
    names = configured("config")
    for name in names:
        try:
            if main([name, *words]):
                failed.append(name)
        except NpucError as error:
            print(f"{name}: FAILED: {error}")
            failed.append(name)
    print(f"{counted(len(names), 'model')}: {len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def configured(folder: str) -> list[str]:
    """The names of all configs: of a folder of the regression, or else of the working folder."""
    root = Path(os.environ.get("REGRESSION_PATH", "."))
    for place in (root / folder, Path()):
        names = sorted(path.stem for ending in ("cfg", "ini") for path in place.glob(f"*.{ending}"))
        if names:
            return names
    raise FileMissingError(
        f"there is no config here or in $REGRESSION_PATH/{folder}", fix="Write NAME.cfg for each model"
    )


def config_of(name: str) -> Path:
    """The config file of a model."""
    root = Path(os.environ.get("REGRESSION_PATH", "."))
    names = (f"{name}.cfg", f"{name}.ini", name)
    for folder in (Path(), root / "config", root / "eval" / "qat_config", root):
        for file in names:
            if (folder / file).is_file():
                return folder / file
    raise FileMissingError(
        f"there is no config of '{name}'", fix=f"Write {name}.cfg here or in $REGRESSION_PATH/config"
    )


def read_config(path: Path) -> dict[str, str]:
    """The lines `key=value` of a config file; paths are expanded, and relative ones are those of the working folder."""
    try:
        lines = read_short(path, _MAX_FILE, "a config", FileFormatError).decode().splitlines()
    except UnicodeDecodeError as error:
        raise FileFormatError("is not a text file", where=str(path)) from error
    config: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text or re.fullmatch(r"\[\w+\]", text):
            continue
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key:
            raise FileFormatError(f"'{text[:60]}' is not key=value", where=f"{path}, line {number}")
        known = {*_TRANSFORM, *_PATHS, *_OTHERS, *(f"{kind}_tolerance" for kind in _TYPES)}
        if key not in known:
            warn(f"{path}, line {number}: '{key}' is passed over")
        expanded = re.sub(r"\$\{?(\w+)\}?", _variable, value)
        config[key] = _absolute(expanded) if key in _PATHS else expanded
    return config


def _variable(match: re.Match[str]) -> str:
    """The value of an environment variable; the regression is in the working folder unless REGRESSION_PATH says otherwise."""
    return os.environ.get(match[1], "." if match[1] == "REGRESSION_PATH" else match[0])


def _absolute(text: str) -> str:
    return ",".join(str(Path(part).absolute()) for part in text.split(","))


def _modes(config: Mapping[str, str], mode: str) -> list[str]:
    if mode != "all":
        if mode not in _TYPES:
            raise UsageError(f"--mode {mode} is none of {', '.join(_TYPES)}")
        return [mode]
    stated = [kind for kind in _TYPES if f"{kind}_tolerance" in config]
    return stated or ["f32", "int8_sym"]


def transform_arguments(name: str, model: str, config: Mapping[str, str]) -> list[str]:
    """Of model_transform.py."""
    arguments = [f"--{key}={config[key]}" for key in _TRANSFORM if key in config]
    arguments += [f"--debug_cmd={config['debug_cmd']}"] if "debug_cmd" in config else []
    arguments += ["--keep_aspect_ratio"] if config.get("keep_aspect_ratio") else []
    if "test_input" in config:
        arguments += [f"--test_input={config['test_input']}", f"--test_result={name}_top_outputs.npz"]
    return ["--model_name", name, "--model_def", model, "--mlir", f"{name}.mlir", *arguments]


def calibration_arguments(name: str, config: Mapping[str, str]) -> list[str]:
    """Of run_calibration.py."""
    if "dataset" not in config and "data_list" not in config:
        raise UsageError(f"the config of '{name}' has neither dataset nor data_list")
    source = "dataset" if "dataset" in config else "data_list"
    counts = [
        f"--{key}={config.get(key, default)}" for key, default in (("input_num", "100"), ("tune_num", "10"))
    ]
    return [f"{name}.mlir", f"--{source}={config[source]}", *counts, "-o", f"{name}_cali_table"]


def deploy_arguments(name: str, chip: str, mode: str, config: Mapping[str, str]) -> list[str]:
    """Of model_deploy.py."""
    arguments = [
        "--mlir",
        f"{name}.mlir",
        "--chip",
        chip,
        "--quantize",
        mode.split("_")[0],
        "--model",
        f"{name}_{mode}.bmodel",
    ]
    if mode.startswith("int8"):
        arguments += ["--calibration_table", config.get("calibration_table", f"{name}_cali_table")]
    if mode == "int8_asym":
        arguments.append("--asymmetric")
    if "test_input" in config:
        arguments += ["--test_input", f"{name}_in_f32.npz", "--test_reference", f"{name}_top_outputs.npz"]
    if f"{mode}_tolerance" in config:
        arguments += ["--tolerance", config[f"{mode}_tolerance"]]
    if "excepts" in config:
        arguments += ["--excepts", config["excepts"]]
    return arguments
