"""`model_eval.py`: the accuracy of a model on a data set, printed as TPU-MLIR prints it."""

from __future__ import annotations

import math
from pathlib import Path

from npuc.compat.arguments import VendorParser, keyword
from npuc.compat.running import warn
from npuc.datasets.data import DataLocation
from npuc.errors import UsageError
from npuc.evaluate import evaluate
from npuc.evaluate.report import EvaluationReport
from npuc.files import existing_file, existing_model
from npuc.flow import load_model
from npuc.frontend.sniff import describe_content
from npuc.ir import shape_of

_CHANNELS = 255
"""Of a head for the 80 classes of COCO: three anchors, each with a box, a score and the classes."""
_HEADS = {2: "yolov3_tiny", 3: "yolov5"}
"""By the number of heads."""
_DATASETS = {"imagenet": None, "coco": "coco", "voc": "voc"}


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("model_eval.py", "Measure the accuracy of a model.")
    own.add(
        "--model_file", required=True, help="an .mlir file, a compiled model, or a model of its own framework"
    )
    own.add("--dataset", required=True, help="the folder of the data set")
    own.add("--dataset_type", type=keyword(*_DATASETS, "user_define"), default="imagenet")
    own.add("--postprocess_type", type=keyword("topx", "coco_mAP"), required=True)
    own.add("--label_file", help="the class of each image, 1 to 1000, in the order of their names")
    own.add("--coco_annotation", help="the .json file of COCO annotations")
    own.add("--count", type=int, default=0, help="images to use; 0 means all")
    own.add_ignored("--debug_cmd", "images are resized as the .mlir file states")
    own.add_refused("--data_list", "a data set is a folder; npuc eval takes lists of files and labels")
    return own


def _is_class(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    if options.dataset_type == "user_define":
        raise UsageError(
            "--dataset_type user_define: data sets of your own are plugins here (npuc eval --plugin)"
        )
    if options.count < 0:
        raise UsageError(f"--count {options.count} is below 0")
    model = existing_model(options.model_file)
    folder = Path(options.dataset)
    detects = options.postprocess_type == "coco_mAP"
    if detects and not options.coco_annotation:
        raise UsageError("--postprocess_type coco_mAP needs --coco_annotation")
    if detects:
        place = DataLocation(folder, existing_file(options.coco_annotation), folder)
    else:
        labels = existing_file(options.label_file) if options.label_file else None
        if labels is None and folder.is_dir() and not any(_is_class(entry) for entry in folder.iterdir()):
            raise UsageError(
                f"--dataset {folder} has no subfolders, which would be the classes",
                fix="Give the class of each image with --label_file",
            )
        place = DataLocation(folder, labels, label_offset=-1 if labels else 0)
    report = evaluate(
        model,
        place,
        ["map"] if detects else ["top1", "top5"],
        dataset="coco" if detects else None,
        max_count=options.count or None,
        postprocess=_decoding(model) if detects else None,
        warn=warn,
    )
    for line in _coco_lines(report) if detects else [_top_line(report)]:
        print(line)
    return 0


def _decoding(model: Path) -> str | None:
    """How raw heads of a detector become boxes, by their number and shapes; None if they are no raw heads."""
    if describe_content(model).kind == "npu":
        return None
    shapes = [shape_of(port.value) for port in load_model(model).outputs]
    is_head = [(len(shape) == 4 and shape[1] == _CHANNELS) or shape[-1:] == (85,) for shape in shapes]
    kind = _HEADS.get(len(shapes)) if all(is_head) else None
    if kind is not None:
        warn(f"model_eval.py: the {len(shapes)} outputs are decoded as {kind}")
    return kind


def _top_line(report: EvaluationReport) -> str:
    values = {figure.metric: figure.models[0].value for figure in report.figures}
    return f"idx:{report.samples}, top1:{values['top1']:.3f}, top5:{values['top5']:.3f}"


_PRECISION, _RECALL = ("Average Precision", "(AP)"), ("Average Recall", "(AR)")
_LINES = (
    (_PRECISION, "0.50:0.95", "all", 100, "AP"),
    (_PRECISION, "0.50", "all", 100, "AP50"),
    (_PRECISION, "0.75", "all", 100, "AP75"),
    (_PRECISION, "0.50:0.95", "small", 100, "APs"),
    (_PRECISION, "0.50:0.95", "medium", 100, "APm"),
    (_PRECISION, "0.50:0.95", "large", 100, "APl"),
    (_RECALL, "0.50:0.95", "all", 1, "AR1"),
    (_RECALL, "0.50:0.95", "all", 10, "AR10"),
    (_RECALL, "0.50:0.95", "all", 100, "AR100"),
    (_RECALL, "0.50:0.95", "small", 100, "ARs"),
    (_RECALL, "0.50:0.95", "medium", 100, "ARm"),
    (_RECALL, "0.50:0.95", "large", 100, "ARl"),
)
"""The lines of COCO's own summary, and the figure of `map` that each shows."""


def _known(value: float) -> float:
    """A figure; -1 where there is nothing to measure, as in COCO's own summary."""
    return -1.0 if math.isnan(value) else value


def _coco_lines(report: EvaluationReport) -> list[str]:
    values = {figure.name: figure.models[0].value for figure in report.figures}
    return [
        f" {title:<18} {short} @[ IoU={overlap:<9} | area={area:>6} | maxDets={most:>3} ] = {_known(values[name]):0.3f}"
        for (title, short), overlap, area, most, name in _LINES
    ]
