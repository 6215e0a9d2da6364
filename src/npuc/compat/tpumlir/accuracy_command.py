"""`run_eval.py`: the accuracy of models after quantization, each as its config file says.

    # resnet.cfg, beside what run_model.py reads
    eval_dataset=${REGRESSION_PATH}/val
    label_file=${REGRESSION_PATH}/labels.txt

A model is transformed, calibrated unless its config names a table, compiled as INT8, and measured; all that is printed goes to
`NAME_qat/log_NAME.mlir`, and the last line of it to the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from npuc.compat.arguments import VendorParser, comma_list
from npuc.compat.tpumlir import calibration_command, deploy_command, eval_command, transform_command
from npuc.compat.tpumlir.chips import add_chip, chip_named
from npuc.compat.tpumlir.regression_command import (
    EVALUATION,
    calibration_arguments,
    config_of,
    configured,
    deploy_arguments,
    read_config,
    transform_arguments,
)
from npuc.errors import FileMissingError, NpucError, UsageError
from npuc.files import existing_model, make_folder

_FAST = 30
"""Images of the fast test."""
_DEPLOYED = "_deploy_model.onnx"


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser(
        "run_eval.py", "Measure the accuracy of models after quantization, as their configs say."
    )
    own.add(
        "--qat_model_path",
        help="model files, or folders with trained ones, between commas; without it, those of all configs",
    )
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
    models = [model for path in comma_list(options.qat_model_path or "") for model in _models(Path(path))]
    if not options.qat_model_path:
        models = [_Model(name) for name in configured("eval/qat_config")]
    failed = 0
    for model in models:
        config = {**read_config(model.config), **model.files}
        if options.debug_cmd:
            config["debug_cmd"] = options.debug_cmd
        try:
            print(f"{model.name}: {_measured(model.name, chip, config, _FAST if options.fast_test else 0)}")
        except NpucError as error:
            print(f"{model.name}: FAILED: {error}")
            failed += 1
    return 1 if failed else 0


@dataclass(frozen=True)
class _Model:
    """A model that is measured, and the files that take the place of those of its config."""

    name: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """Its config; a trained model may have one of its own, NAME_qat.cfg."""
        try:
            return config_of(f"{self.name}_qat")
        except FileMissingError:
            return config_of(self.name)


def _models(path: Path) -> list[_Model]:
    """A model file, or what `convert_deploy` wrote into a folder: networks with their calibration tables."""
    if not path.is_dir():
        return [_Model(path.stem, {"model_path": str(existing_model(path).absolute())})]
    models = []
    for network in sorted(path.glob(f"*{_DEPLOYED}")):
        name = network.name.removesuffix(_DEPLOYED)
        table = network.with_name(f"{name}_cali_table_from_mqbench_sophgo_tpu")
        files = {"model_path": str(network.absolute())}
        if table.is_file():
            files["calibration_table"] = str(table.absolute())
        models.append(_Model(name.removesuffix("_mqmobile"), files))
    if not models:
        raise FileMissingError(
            f"there is no *{_DEPLOYED} in '{path}'", fix="convert_deploy of mqbench writes them"
        )
    return models


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
