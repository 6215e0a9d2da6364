"""`run_eval.py`: the accuracy of models after quantization, each as its config file says.

    # resnet.cfg, beside what run_model.py reads
    eval_dataset=${REGRESSION_PATH}/val
    label_file=${REGRESSION_PATH}/labels.txt

A model is transformed, calibrated unless its config names a table, compiled as INT8, and measured; all that is printed goes to
`NAME_qat/log_NAME.mlir`, and the last line of it to the user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from pathlib import Path

from npuc.compat.arguments import VendorParser, comma_list
from npuc.compat.tpumlir import calibration_command, deploy_command, eval_command, transform_command
from npuc.compat.tpumlir.chips import add_chip, chip_named
from npuc.compat.tpumlir.regression_command import (
    EVALUATION,
    calibration_arguments,
    config_of,
    deploy_arguments,
    read_config,
    transform_arguments,
)
from npuc.errors import FileMissingError, NpucError, UsageError
from npuc.files import existing_model, make_folder

_FAST = 30
"""Images of the fast test."""


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser(
        "run_eval.py", "Measure the accuracy of models after quantization, as their configs say."
    )
    own.add("--qat_model_path", help="model files, between commas; without it, those of all configs")
    own.add("--fast_test", action="store_true", help=f"measure on {_FAST} images")
    own.add("--debug_cmd", help="in place of that of the configs")
    add_chip(own)
    own.add_ignored("--qat_eval", "every model takes the same way", action="store_true")
    own.add_ignored("--pool_size", "models are measured one after the other, each with all threads")
    own.add_ignored("--batch_size", "a model has the batch that it was imported with")
    return own


def main(arguments: list[str]) -> int:
    """Run the command; 0 if every model could be measured."""
    options = parser().parse(arguments)
    chip = options.chip or "bm1684x"
    chip_named(chip, "run_eval.py")
    paths = [existing_model(path).absolute() for path in comma_list(options.qat_model_path or "")]
    names = [path.stem for path in paths] or _configured()
    failed = 0
    for number, name in enumerate(names):
        config = read_config(config_of(name))
        if paths:
            config["model_path"] = str(paths[number])
        if options.debug_cmd:
            config["debug_cmd"] = options.debug_cmd
        try:
            print(f"{name}: {_measured(name, chip, config, _FAST if options.fast_test else 0)}")
        except NpucError as error:
            print(f"{name}: FAILED: {error}")
            failed += 1
    return 1 if failed else 0


def _configured() -> list[str]:
    """The names of all configs, of the working folder or of the regression."""
    root = Path(os.environ.get("REGRESSION_PATH", "."))
    for folder in (root / "eval" / "qat_config", Path()):
        names = sorted(path.stem for ending in ("cfg", "ini") for path in folder.glob(f"*.{ending}"))
        if names:
            return names
    raise FileMissingError(
        "there is no config here or in $REGRESSION_PATH/eval/qat_config", fix="Write NAME.cfg for each model"
    )


def _measured(name: str, chip: str, config: Mapping[str, str], count: int) -> str:
    """The last line of a measurement."""
    model = config.get("model_path") or config.get("model_def")
    data = config.get("eval_dataset") or config.get("dataset")
    if not model or not data:
        raise UsageError(f"the config of '{name}' has no {'dataset' if model else 'model_path'}")
    words = [
        "--model_file",
        f"{name}_{chip.lower()}_int8_sym_tpu.mlir",
        "--dataset",
        data,
        "--count",
        str(count),
    ]
    words += [
        f"--{key}={config[key]}" for key in (*EVALUATION, "label_file", "coco_annotation") if key in config
    ]
    if "postprocess_type" not in config:
        words += ["--postprocess_type", "coco_mAP" if config.get("dataset_type") == "coco" else "topx"]
    with chdir(make_folder(Path(f"{name}_qat"))):
        log = Path(f"log_{name}.mlir")
        with log.open("w", encoding="utf-8") as out, redirect_stdout(out):
            transform_command.main(transform_arguments(name, model, config))
            if "calibration_table" not in config:
                calibration_command.main(calibration_arguments(name, config))
            deploy_command.main(deploy_arguments(name, chip, "int8_sym", config))
            eval_command.main(words)
        return log.read_text(encoding="utf-8").splitlines()[-1]
