"""What the vendor's pruning runners share: the files in `.vai/`, and the steps of iterative pruning.

Models are torch modules or those of Keras. Files have the vendor's names and npuc's content: `<Model>.sens` (what `ana`
measured), `<Model>_ratio_<r>.spec` and `latest_spec` (the channels that were removed).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from npuc.compat.vitis.notices import note, refusal
from npuc.errors import FileFormatError, FileMissingError, NpucError
from npuc.files import make_folder, read_short, write_atomically
from npuc.train.pruning.channels import Channels
from npuc.train.pruning.sensitivities import Sensitivity

AnyChannels = TypeVar("AnyChannels", bound=Channels)

FOLDER = Path(".vai")
"""Where the files of all runners are."""
_LARGEST_FILE = 64 << 20
_MODES = ("sparse", "slim")


class PruningRunner(Generic[AnyChannels]):
    """A model by its name, its channels and files."""

    def __init__(self, name: str, channels: AnyChannels) -> None:
        self.name, self._channels = name, channels

    def _path(self, ending: str) -> Path:
        return FOLDER / f"{self.name}{ending}"

    def _pruned(self, channels: AnyChannels, selection: Mapping[str, Sequence[int]], mode: str) -> Any:
        return channels.slim(selection) if mode == "slim" else channels.masked(selection)

    def _save(self, path: Path, content: Any) -> None:
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write((json.dumps(content, indent=1) + "\n").encode())

    def _spec(self, channels: AnyChannels, widths: Mapping[str, int], ratio: float) -> dict[str, Any]:
        """The content of a `.spec` file: the channels of each group that go."""
        return {
            "model": self.name,
            "removal_ratio": ratio,
            "macs": channels.macs(widths),
            "channels": _sizes(channels),
            "removed": channels.dropped(widths),
        }

    def _analyse(self, channels: AnyChannels, evaluate: Callable[[Any], Any], forced: bool) -> None:
        path = self._path(".sens")
        if path.exists() and forced:
            path.unlink()
        make_folder(path.parent)
        channels.sensitivity(lambda model: number_of(evaluate(model)), path)
        note(f"=>{path}")

    def _iterative(
        self,
        channels: AnyChannels,
        option: str,
        removal_ratio: float | None,
        threshold: float | None,
        spec_path: Path | str | None,
        mode: str,
    ) -> Any:
        """The model without a share of its multiply-adds, as `option` or a threshold says, or without what a file removes."""
        check_mode(mode)
        if spec_path is not None:
            if removal_ratio is not None or threshold is not None:
                raise invalid(f"spec_path says what is removed, and {option} or threshold is given, too")
            return self._pruned(channels, self._saved(Path(spec_path), channels), mode)
        if removal_ratio is None and threshold is None:
            raise invalid(f"prune needs {option}, threshold or spec_path")
        if removal_ratio is not None and threshold is not None:
            raise invalid(f"prune takes {option} or threshold, and both are given")
        ratio = ratio_of(removal_ratio, option) if removal_ratio is not None else float(threshold or 0)
        own = self._path(f"_ratio_{ratio:g}.spec")
        if mode == "slim" and own.exists() and read_json(own).get("channels") == _sizes(channels):
            # The slim model has the channels of the sparse one that was trained, whatever is important now.
            return self._pruned(channels, self._saved(own, channels), mode)
        measured = self._analysis(channels)
        widths = (
            channels.widths(1 - ratio, measured)
            if removal_ratio is not None
            else _tolerated(channels, measured, ratio)
        )
        spec = self._spec(channels, widths, ratio)
        self._save(own, spec)
        self._save(FOLDER / "latest_spec", {"spec": own.name})
        left = spec["macs"] / channels.costs.whole
        note(f"=>{1 - left:.1%} of the multiply-adds are removed: {own}")
        return self._pruned(channels, spec["removed"], mode)

    def _analysis(self, channels: AnyChannels) -> Sensitivity:
        path = self._path(".sens")
        if not path.exists():
            raise refusal("OPTIMIZER_NO_ANA_RESULT_ERROR", f"{path} does not exist", "Call ana first")
        measured = Sensitivity.load(path)
        missing = [group.name for group in channels.dependencies.groups if group.name not in measured.groups]
        if missing:
            raise refusal(
                "OPTIMIZER_INVALID_ANA_RESULT_ERROR",
                f"{path} has no measurement of '{missing[0]}'",
                "Call ana(forced=True) with this model and these excludes",
            )
        return measured

    def _saved(self, path: Path, channels: AnyChannels) -> dict[str, list[int]]:
        """The channels that a `.spec` file removes."""
        if path.name == "latest_spec" and path.exists():
            path = path.parent / str(read_json(path).get("spec"))
        spec = read_json(path)
        removed = spec.get("removed")
        if not isinstance(removed, dict) or spec.get("channels") != _sizes(channels):
            raise refusal(
                "OPTIMIZER_INVALID_ARGUMENT_ERROR",
                f"{path} is of another model, or of other excludes",
                "Prune this model",
                FileFormatError,
            )
        return {str(name): [int(at) for at in positions] for name, positions in removed.items()}


def _sizes(channels: Channels) -> dict[str, int]:
    return {group.name: group.size for group in channels.dependencies.groups}


def invalid(text: str, fix: str = "") -> NpucError:
    """An argument that cannot be."""
    return refusal("OPTIMIZER_INVALID_ARGUMENT_ERROR", text, fix)


def check_mode(mode: str) -> None:
    """Refuse another mode than the two."""
    if mode not in _MODES:
        raise invalid(f"mode is {mode!r}", "Give 'sparse' or 'slim'")


def ratio_of(value: Any, option: str = "removal_ratio") -> float:
    """The share of the multiply-adds to be removed."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise invalid(f"{option} is {value!r}", "Give a number between 0 and 1")
    return float(value)


def number_of(score: Any) -> float:
    """What an evaluation function gave, as a number: a tensor of one element, or a number."""
    try:
        return float(score)
    except (TypeError, ValueError) as error:
        raise refusal(
            "OPTIMIZER_MODEL_ANALYSIS_ERROR",
            f"eval_fn gave a {type(score).__name__}",
            "It has to return one number; more is better",
        ) from error


def _tolerated(channels: Channels, measured: Sensitivity, loss: float) -> dict[str, int]:
    """The narrowest width of each group that loses no more than a share of the score."""
    return {
        group.name: min(
            [
                group.size,
                *(k for k, score in measured.groups[group.name].points.items() if score.divergence <= loss),
            ]
        )
        for group in channels.dependencies.groups
    }


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of a runner."""
    if not path.is_file():
        raise FileMissingError("does not exist", where=str(path))
    try:
        content = json.loads(read_short(path, _LARGEST_FILE, path.name, FileFormatError))
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise FileFormatError("is not a JSON object", where=str(path))
    return content
