"""Every error a user can meet, in one catalogue.

Each class is one entry: a stable `code`, a `title`, and a docstring that the generated page `docs/errors.md` shows.
An instance is one paragraph: what went wrong, where, why, and what to do. `exit_status` is 2 for a mistake that the
user can mend and 1 for a fault of npuc's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

_TWO_STOPS = re.compile(r"(?<=[\w'\")\]])\.\.(?=\s|$)")


class NpucError(Exception):
    """Base of all errors that npuc raises on purpose; never raised itself."""

    code: ClassVar[str] = "E000"
    title: ClassVar[str] = "npuc error"
    exit_status: ClassVar[int] = 2

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def paragraph(self) -> str:
        """The whole error as one paragraph, as the command line prints it."""
        parts = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.fix:
            parts.append(self.fix)
        text = " ".join(part if part.endswith((".", "!", "?", "\n")) else part + "." for part in parts)
        # A sentence of somebody else may have its own full stop.
        return _TWO_STOPS.sub(".", text)

    def __str__(self) -> str:
        return f"[{self.code}] {self.paragraph()}"


# E1xx: files


class FileMissingError(NpucError):
    """A path that was given does not exist or cannot be read. Check the spelling and the working directory."""

    code, title = "E101", "file not found"


class FileFormatError(NpucError):
    """A file is not what its place asks for: truncated, corrupt, of another format, or not readable by npuc."""

    code, title = "E102", "not a readable file of this kind"


class WeightFileError(NpucError):
    """The `.safetensors` file beside an `.mlir` file is missing, damaged, or does not hold what the text refers to."""

    code, title = "E103", "weights do not fit the program"


class OutputError(NpucError):
    """A result could not be written: no such folder, no permission, or no space left. The old file is untouched."""

    code, title = "E104", "cannot write the result"


class SignatureError(NpucError):
    """A compiled model has to be signed by a certain key (`--key`, `Runner(key=...)`), and is not: it has no signature, that of
    another key, or was changed since. `npuc verify` tells which; a model of your own is signed again by `npuc sign`."""

    code, title = "E105", "not signed by this key"


# E2xx: import


class InvalidModelError(NpucError):
    """A model file can be decoded but makes no sense: cycles, duplicate or undeclared tensors, impossible shapes,
    attributes of the wrong type. The message names the node; the model has to be exported again."""

    code, title = "E201", "the model is not valid"


class OpsetError(NpucError):
    """The model asks for an operator set that npuc does not know. Re-export it with a supported opset."""

    code, title = "E202", "operator set not supported"


class DynamicShapeError(NpucError):
    """A graph input has a dimension that is not known. npuc compiles static shapes; the message shows the exact
    `--input-shape` to add."""

    code, title = "E203", "a dynamic input shape is left open"


class ExternalDataError(NpucError):
    """External tensor data is missing, too short, or lies outside the directory of the model. The last is refused,
    because a model file must not be able to read other files of yours."""

    code, title = "E204", "external tensor data refused"


class UnknownTensorError(NpucError):
    """A tensor, layer or input name that was asked for is not in the model. The message lists the nearest names."""

    code, title = "E205", "no such tensor"


class UnsupportedTypeError(NpucError):
    """A value has a type that npuc has no form for: strings, sequences, optionals, maps or sparse tensors."""

    code, title = "E206", "type not supported"


class ResourceLimitError(NpucError):
    """A model declares something absurdly large (a tensor, a loop, a nesting depth). The limit protects the machine
    from a file that lies about its sizes."""

    code, title = "E207", "a declared size is beyond the limit"


class NumericMismatchError(NpucError):
    """The imported network and the original one disagree by more than the tolerance. The table shows the first layer
    that differs. `--except LAYERS` leaves layers out, `--tolerance cosine,euclid` changes the bar."""

    code, title = "E208", "import check failed"


class UnsupportedOpError(NpucError):
    """The model has an operator that npuc has no form for, or one in a form that it does not know. The message names the
    operator and the tensor that it makes; `--outputs` cuts the network before it."""

    code, title = "E209", "operator not supported"


# E3xx: the IR


class NetworkError(NpucError):
    """A network that is built in Python asks for an op that cannot be: shapes, types or values do not fit. The message
    names the function and what it was given."""

    code, title = "E305", "the op cannot be made"


class ParseError(NpucError):
    """An `.mlir` file could not be parsed. The message has the line and column."""

    code, title = "E301", "the IR text is not valid"


class VerificationError(NpucError):
    """An op of the IR breaks its own rules: shapes, types or attributes do not fit. The message names the layer."""

    code, title = "E302", "the IR does not verify"


class PipelineError(NpucError):
    """A `--pass-pipeline` names an unknown pass or gives a pass an option that it does not have."""

    code, title = "E303", "bad pass pipeline"


class PassError(NpucError):
    """A pass failed on a valid program. This is a bug in npuc: please report it with the IR before the pass."""

    code, title, exit_status = "E304", "a pass failed", 1


# E4xx: data


class InputDataError(NpucError):
    """An input tensor is missing, or has the wrong name, shape or type for the network."""

    code, title = "E401", "input data does not fit"


class PreprocessError(NpucError):
    """A preprocessing description is inconsistent with the input it is attached to."""

    code, title = "E402", "preprocessing does not fit"


class CompareError(NpucError):
    """Two tensor files differ by more than the tolerance, or share no tensor of the same name and shape."""

    code, title = "E403", "tensors differ"


class QuantizationError(NpucError):
    """A network cannot be quantized as asked: a range is missing or not finite, a layer that a configuration names is
    not there, or a scheme contradicts itself."""

    code, title = "E404", "cannot be quantized as asked"


class CalibrationDataError(NpucError):
    """Calibration data cannot be used: an empty folder, no readable sample, gray images among coloured ones, a tensor
    that never has a finite value. Without `--strict` a single bad sample is named and passed over."""

    code, title = "E405", "calibration data cannot be used"


class EvaluationDataError(NpucError):
    """A data set cannot be evaluated on as asked: a label is missing or is not a class of the model, annotations make no
    sense, an image cannot be decoded, or the metric does not belong to the task."""

    code, title = "E406", "evaluation data cannot be used"


class TrainingError(NpucError):
    """A network cannot be trained: no parameter has a gradient, the loss is not a number, or the module has a form that
    cannot become a network."""

    code, title = "E407", "cannot be trained"


# E5xx: the machine


class NativeLibraryError(NpucError):
    """The native core is missing or does not belong to this version of npuc. Reinstall npuc (a C compiler is needed
    when it is built from source)."""

    code, title, exit_status = "E501", "native core not usable", 1


class MissingExtraError(NpucError):
    """A feature needs an optional package that is not installed. The message has the `pip install` line."""

    code, title = "E502", "an optional package is missing"


class EngineError(NpucError):
    """ONNX Runtime refused or failed to run a network that npuc gave it. The message has its own words."""

    code, title = "E503", "the float engine failed"


class OriginalError(NpucError):
    """The runtime that judges an import (ONNX Runtime, LiteRT, OpenCV, ...) is not installed, or cannot load or run the
    file (an old operator set, a layer that it does not know, random data that the network cannot digest), so there is
    nothing to compare the import with. `--check-input` checks with real data."""

    code, title = "E504", "the original cannot be run"


class SimulationError(NpucError):
    """A simulator refused an instruction of a compiled program: an operand outside of its memory, a parameter that makes
    no sense, a barrier that not every core comes to. The message names the instruction and its layer."""

    code, title = "E505", "the program cannot be executed"


class DeviceError(NpucError):
    """A device failed: its driver cannot be loaded, it broke off in the middle of a run, or no device of a pool is left.
    The message names the device. A runner loads the model again for the next job."""

    code, title, exit_status = "E506", "a device failed", 1


class UnknownDeviceError(NpucError):
    """No device has this name, neither registered in the program nor by an installed package (entry points
    `npuc.devices`). The message lists what there is."""

    code, title = "E507", "no such device"


class JobTimeoutError(NpucError):
    """A job was not finished in the time that its caller would wait. The job goes on and can be waited for again."""

    code, title, exit_status = "E508", "a job takes too long", 1


class ShutdownError(NpucError):
    """A runner, pool or pipeline was closed before a job was finished, or a job was given to one that is closed."""

    code, title, exit_status = "E509", "closed with the job unfinished", 1


class QueueFullError(NpucError):
    """A queue of jobs was full for as long as its caller would wait. Jobs come faster than they are done: wait longer,
    allow a longer queue, or add devices."""

    code, title, exit_status = "E510", "the queue is full", 1


class JobCancelledError(NpucError):
    """A job was cancelled before it began."""

    code, title, exit_status = "E511", "the job was cancelled", 1


class UsageError(NpucError):
    """Options contradict each other or have a value of the wrong form."""

    code, title = "E601", "bad option"


class PluginError(NpucError):
    """A plugin that was named with `--plugin`, or that an installed package brings, cannot be loaded, or registers something
    that is taken. The message names it and the line. A plugin is Python code of the user's choice; npuc runs no other."""

    code, title = "E602", "a plugin is broken"


class PluginFaultError(NpucError):
    """The code of a plugin raised an exception, or gave something that cannot be used, when npuc called it. The message has the
    plugin, the file and the line; the fault is there, not in npuc."""

    code, title = "E603", "a plugin failed"


# E7xx: targets


class TargetError(NpucError):
    """A target file does not describe a machine: a field is missing, unknown or of the wrong form, or two fields
    contradict each other. The message has the field and what is allowed; `npuc targets check FILE` lists every problem
    at once (`problems` in Python)."""

    code, title = "E701", "the target is not valid"

    def __init__(
        self, message: str, *, where: str | None = None, fix: str | None = None, problems: Sequence[Any] = ()
    ) -> None:
        super().__init__(message, where=where, fix=fix)
        self.problems = tuple(problems)


class UnknownTargetError(NpucError):
    """No target has this name, neither on `NPUC_TARGET_PATH`, nor in `~/.config/npuc/targets`, nor among the presets.
    `npuc targets list` shows what there is."""

    code, title = "E702", "no such target"


class LimitExpressionError(NpucError):
    """An expression in a target's limits is not allowed, or cannot be evaluated: it divides by zero, or needs the value
    of a parameter that the op does not have."""

    code, title = "E703", "a limit cannot be evaluated"


class WrongTargetError(NpucError):
    """A compiled model is for another machine: its fingerprint is not that of the target. The message names both.
    Compile the model for this one."""

    code, title = "E704", "compiled for another machine"


class AddressError(NpucError):
    """Base addresses cannot be given to a compiled model as asked: an unknown segment, an address that is not aligned,
    two segments that overlap, or a file that belongs to another model. `npuc relocate MODEL --dump` writes a file to
    start from."""

    code, title = "E705", "base addresses do not fit"


class CompileError(NpucError):
    """A network cannot be compiled for a machine: what has to be in local memory at the same time does not fit, a number does
    not fit the field of an instruction, or the shape of an output depends on the data. The message names the layer."""

    code, title = "E706", "cannot be compiled"


class MemoryPlanError(NpucError):
    """Buffers cannot be given addresses as asked: they do not fit the memory, two fixed ones collide, or a description
    contradicts itself. The message says whether it is impossible or was only not found within the steps allowed."""

    code, title = "E707", "no memory plan"


class ScheduleError(NpucError):
    """A schedule file asks for what cannot be: a name that is not in the network, layers that do not follow each other,
    tiles that do not fit local memory. The message has the bytes; `--save-schedule` writes a file to start from."""

    code, title = "E708", "the schedule cannot be followed"


class DebugInfoError(NpucError):
    """A compiled model does not tell where its layers are in memory, or tells it wrongly, so that no layer of it can be
    dumped or compared. It runs all the same. Compile the model again."""

    code, title = "E709", "no layers to be seen in this file"


# E8xx: export


class ExportError(NpucError):
    """A program has no form in the format it shall be written in: some layers have no operator there that computes the
    same. The message names them all, with the reason for each."""

    code, title = "E801", "no form in this format"


class InternalError(NpucError):
    """npuc itself failed. This is a bug: please report it with the command line. `NPUC_TRACEBACK=1` shows where."""

    code, title, exit_status = "E901", "internal error", 1


def catalogue() -> list[type[NpucError]]:
    """All error classes, in order of their codes.

    >>> catalogue()[0].code
    'E101'
    """
    classes: list[type[NpucError]] = []
    stack: list[type[NpucError]] = [NpucError]
    while stack:
        children = stack.pop().__subclasses__()
        classes.extend(children)
        stack.extend(children)
    return sorted(classes, key=lambda cls: cls.code)
