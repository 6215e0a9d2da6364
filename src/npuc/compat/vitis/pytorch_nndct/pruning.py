"""`pytorch_nndct.pruning`: the vendor's pruning runners, on npuc's pruning of torch modules.

A runner leaves its files in `.vai/`, under the vendor's names and with content of npuc: `<Model>.sens` (what `ana` measured),
`<Model>_ratio_<r>.spec` and `latest_spec` (the channels that were removed), `<Model>.search` (the candidates of a search).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.compat.vitis.notices import note, refusal
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of
from npuc.compat.vitis.pytorch_nndct.names import excluded_names
from npuc.compat.vitis.pytorch_nndct.ofa import OFAPruner
from npuc.errors import FileFormatError, FileMissingError, NpucError
from npuc.files import make_folder, read_short, write_atomically
from npuc.train.modules.channels import Candidate, ModuleChannels
from npuc.train.modules.sparse import dense_weights, sparse_module
from npuc.train.pruning.sensitivities import Sensitivity

__all__ = [
    "IterativePruningRunner",
    "OFAPruner",
    "OneStepPruningRunner",
    "SparsePruner",
    "get_pruning_runner",
]

_FOLDER = Path(".vai")
_LARGEST_FILE = 64 << 20
_MODES = ("sparse", "slim")
_W_SPARSITIES = (0, 0.5, 0.75)
_BLOCKS = (4, 8, 16)
_LEAST_CHANNELS = 17
"""Layers with more than 16 input channels become sparse."""


class _Runner:
    """What both runners have: a module, its channels and files."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model = module_of(model)
        self.name = type(self.model).__name__
        self._channels = ModuleChannels(self.model, arguments_tuple(inputs))

    def _path(self, ending: str) -> Path:
        return _FOLDER / f"{self.name}{ending}"

    def _pruned(self, channels: ModuleChannels, selection: Mapping[str, Sequence[int]], mode: str) -> Any:
        return channels.slim(selection) if mode == "slim" else channels.masked(selection)

    def _save(self, path: Path, content: Any) -> None:
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write((json.dumps(content, indent=1) + "\n").encode())

    def _spec(self, channels: ModuleChannels, widths: Mapping[str, int], ratio: float) -> dict[str, Any]:
        """The content of a `.spec` file: the channels of each group that go."""
        return {
            "model": self.name,
            "removal_ratio": ratio,
            "macs": channels.macs(widths),
            "channels": _sizes(channels),
            "removed": channels.dropped(widths),
        }


class IterativePruningRunner(_Runner):
    """Analyses a module once, and prunes it further and further, with training by the user in between."""

    def ana(
        self,
        eval_fn: Callable[..., Any],
        args: Iterable[Any] = (),
        gpus: Any = None,
        excludes: Sequence[Any] | None = None,
        forced: bool = False,
    ) -> None:
        """Measure how the score of `eval_fn(model, *args)` falls when each group of channels alone gets narrower."""
        _check_gpus(gpus)
        path = self._path(".sens")
        if path.exists() and forced:
            path.unlink()
        make_folder(path.parent)
        channels = self._channels.excluding(excluded_names(self.model, excludes))
        channels.sensitivity(lambda module: _number(eval_fn(module, *args)), path)
        note(f"=>{path}")

    def prune(
        self,
        removal_ratio: float | None = None,
        threshold: float | None = None,
        spec_path: Path | str | None = None,
        excludes: Sequence[Any] | None = None,
        mode: str = "sparse",
    ) -> Any:
        """The module without a share of its multiply-adds; `mode` sparse keeps its shapes, with zeros that stay zeros."""
        _check_mode(mode)
        channels = self._channels.excluding(excluded_names(self.model, excludes))
        if spec_path is not None:
            if removal_ratio is not None or threshold is not None:
                raise _invalid("spec_path says what is removed, and removal_ratio or threshold is given, too")
            return self._pruned(channels, self._saved(Path(spec_path), channels), mode)
        if removal_ratio is None and threshold is None:
            raise _invalid("prune needs removal_ratio, threshold or spec_path")
        if removal_ratio is not None and threshold is not None:
            raise _invalid("prune takes removal_ratio or threshold, and both are given")
        ratio = _ratio(removal_ratio) if removal_ratio is not None else float(threshold or 0)
        own = self._path(f"_ratio_{ratio:g}.spec")
        if mode == "slim" and own.exists() and _read(own).get("channels") == _sizes(channels):
            # The slim module has the channels of the sparse one that was trained, whatever is important now.
            return self._pruned(channels, self._saved(own, channels), mode)
        measured = self._analysis(channels)
        widths = (
            channels.widths(1 - ratio, measured)
            if removal_ratio is not None
            else _tolerated(channels, measured, ratio)
        )
        spec = self._spec(channels, widths, ratio)
        self._save(own, spec)
        self._save(_FOLDER / "latest_spec", {"spec": own.name})
        left = spec["macs"] / channels.costs.whole
        note(f"=>{1 - left:.1%} of the multiply-adds are removed: {own}")
        return self._pruned(channels, spec["removed"], mode)

    def _analysis(self, channels: ModuleChannels) -> Sensitivity:
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

    def _saved(self, path: Path, channels: ModuleChannels) -> dict[str, list[int]]:
        """The channels that a `.spec` file removes."""
        if path.name == "latest_spec" and path.exists():
            path = path.parent / str(_read(path).get("spec"))
        spec = _read(path)
        removed = spec.get("removed")
        if not isinstance(removed, dict) or spec.get("channels") != _sizes(channels):
            raise refusal(
                "OPTIMIZER_INVALID_ARGUMENT_ERROR",
                f"{path} is of another model, or of other excludes",
                "Prune this model",
                FileFormatError,
            )
        return {str(name): [int(at) for at in positions] for name, positions in removed.items()}


class OneStepPruningRunner(_Runner):
    """Looks for a good subnetwork by random draws with adaptive batch norms, and cuts it out."""

    def search(
        self,
        gpus: Any = ("0",),
        calibration_fn: Callable[..., Any] | None = None,
        calib_args: Iterable[Any] = (),
        num_subnet: int = 10,
        removal_ratio: float = 0.5,
        excludes: Sequence[Any] = (),
        eval_fn: Callable[..., Any] | None = None,
        eval_args: Iterable[Any] = (),
    ) -> None:
        """Draw `num_subnet` subnetworks, calibrate their batch norms, measure them; `.vai/<Model>.search` has them all."""
        _check_gpus(gpus)
        if eval_fn is None:
            raise _invalid("search needs an eval_fn")
        calibrate = None if calibration_fn is None else lambda module: calibration_fn(module, *calib_args)
        names = excluded_names(self.model, excludes)
        candidates = self._channels.excluding(names).candidates(
            1 - _ratio(removal_ratio),
            num_subnet,
            lambda module: _number(eval_fn(module, *eval_args)),
            calibrate,
        )
        content = {
            "model": self.name,
            "removal_ratio": removal_ratio,
            "excludes": names,
            "subnets": [vars(candidate) for candidate in candidates],
        }
        self._save(self._path(".search"), content)
        note(
            f"=>best of {len(candidates)} subnetworks: score {candidates[0].score:g}; {self._path('.search')}"
        )

    def prune(
        self,
        mode: str = "slim",
        index: int | None = None,
        removal_ratio: float | None = None,
        pruning_info_path: Path | str | None = None,
    ) -> Any:
        """The best subnetwork of the search, or the one with an index (0 is the best)."""
        _check_mode(mode)
        path = self._path(".search") if pruning_info_path is None else Path(pruning_info_path)
        if not path.exists():
            raise refusal("OPTIMIZER_SUBNET_ERROR", f"{path} does not exist", "Call search first")
        content = _read(path)
        try:
            subnets = [
                Candidate({str(name): int(width) for name, width in entry["widths"].items()}, 0.0, 0.0)
                for entry in content["subnets"]
            ]
            searched, names = float(content["removal_ratio"]), [str(name) for name in content["excludes"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError("is no result of a search", where=str(path)) from error
        if removal_ratio is not None and abs(searched - removal_ratio) > 1e-6:
            raise refusal(
                "OPTIMIZER_SUBNET_ERROR",
                f"{path} is of a search for removal_ratio {searched:g}, not {removal_ratio:g}",
                "Search for each ratio by itself",
            )
        number = index or 0
        if not 0 <= number < len(subnets):
            raise _invalid(f"index is {index}, and the search has {len(subnets)} subnetworks")
        channels = self._channels.excluding(names)
        spec = self._spec(channels, subnets[number].widths, searched)
        self._save(self._path(f"_ratio_{searched:g}.spec"), spec)
        return self._pruned(channels, spec["removed"], mode)


class SparsePruner:
    """Keeps a part of every block of weights along the input channels."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model = module_of(model)
        arguments_tuple(inputs)

    def sparse_model(
        self,
        w_sparsity: float = 0.5,
        a_sparsity: float = 0,
        block_size: int = 16,
        excludes: Sequence[Any] | None = None,
    ) -> Any:
        """A copy whose layers of more than 16 input channels are sparse, in every loop that trains it."""
        if w_sparsity not in _W_SPARSITIES or block_size not in _BLOCKS or a_sparsity not in (0, 0.5):
            raise _invalid(
                f"w_sparsity {w_sparsity}, a_sparsity {a_sparsity}, block_size {block_size}",
                "w_sparsity is 0, 0.5 or 0.75, a_sparsity 0 or 0.5, block_size 4, 8 or 16",
            )
        if a_sparsity and w_sparsity != 0.75:
            raise _invalid("an a_sparsity of 0.5 needs a w_sparsity of 0.75")
        pattern = SparsityPattern(round(block_size * (1 - w_sparsity)), block_size) if w_sparsity else None
        return sparse_module(
            self.model,
            pattern,
            exclude=excluded_names(self.model, excludes),
            activation_sparsity=a_sparsity,
            least_channels=_LEAST_CHANNELS,
        )

    def export_sparse_model(self, model: Any) -> Any:
        """An ordinary module with the zeros in its weights."""
        return dense_weights(module_of(model))


def get_pruning_runner(model: Any, inputs: Any, method: str) -> IterativePruningRunner | OneStepPruningRunner:
    """The runner of a method, 'iterative' or 'one_step'."""
    if method == "iterative":
        return IterativePruningRunner(model, inputs)
    if method == "one_step":
        return OneStepPruningRunner(model, inputs)
    raise _invalid(f"method is {method!r}", "Give 'iterative' or 'one_step'")


def _sizes(channels: ModuleChannels) -> dict[str, int]:
    return {group.name: group.size for group in channels.dependencies.groups}


def _invalid(text: str, fix: str = "") -> NpucError:
    return refusal("OPTIMIZER_INVALID_ARGUMENT_ERROR", text, fix)


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise _invalid(f"mode is {mode!r}", "Give 'sparse' or 'slim'")


def _check_gpus(gpus: Any) -> None:
    if gpus:
        note("gpus: the functions of the caller decide where the model runs")


def _ratio(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise _invalid(f"removal_ratio is {value!r}", "Give a number between 0 and 1")
    return float(value)


def _number(score: Any) -> float:
    """What an evaluation function gave, as a number: a tensor of one element, or a number."""
    try:
        return float(score)
    except (TypeError, ValueError) as error:
        raise refusal(
            "OPTIMIZER_MODEL_ANALYSIS_ERROR",
            f"eval_fn gave a {type(score).__name__}",
            "It has to return one number; more is better",
        ) from error


def _tolerated(channels: ModuleChannels, measured: Sensitivity, loss: float) -> dict[str, int]:
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


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileMissingError("does not exist", where=str(path))
    try:
        content = json.loads(read_short(path, _LARGEST_FILE, path.name, FileFormatError))
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise FileFormatError("is not a JSON object", where=str(path))
    return content
