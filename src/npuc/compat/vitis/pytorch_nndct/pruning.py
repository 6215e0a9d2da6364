"""`pytorch_nndct.pruning`: the vendor's pruning runners, on npuc's pruning of torch modules.

A runner leaves its files in `.vai/`, under the vendor's names and with content of npuc: `<Model>.sens` (what `ana` measured),
`<Model>_ratio_<r>.spec` and `latest_spec` (the channels that were removed), `<Model>.search` (the candidates of a search).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.compat.vitis.notices import note, refusal
from npuc.compat.vitis.pruning_runner import (
    PruningRunner,
    check_mode,
    invalid,
    number_of,
    ratio_of,
    read_json,
)
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of
from npuc.compat.vitis.pytorch_nndct.names import excluded_names
from npuc.compat.vitis.pytorch_nndct.ofa import OFAPruner
from npuc.errors import FileFormatError
from npuc.train.modules.channels import ModuleChannels
from npuc.train.modules.sparse import dense_weights, sparse_module
from npuc.train.pruning.channels import Candidate

__all__ = [
    "IterativePruningRunner",
    "OFAPruner",
    "OneStepPruningRunner",
    "SparsePruner",
    "get_pruning_runner",
]

_W_SPARSITIES = (0, 0.5, 0.75)
_BLOCKS = (4, 8, 16)
_LEAST_CHANNELS = 17
"""Layers with more than 16 input channels become sparse."""


class _ModuleRunner(PruningRunner[ModuleChannels]):
    """A runner of a torch module."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model = module_of(model)
        super().__init__(type(self.model).__name__, ModuleChannels(self.model, arguments_tuple(inputs)))


class IterativePruningRunner(_ModuleRunner):
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
        channels = self._channels.excluding(excluded_names(self.model, excludes))
        self._analyse(channels, lambda module: eval_fn(module, *args), forced)

    def prune(
        self,
        removal_ratio: float | None = None,
        threshold: float | None = None,
        spec_path: Path | str | None = None,
        excludes: Sequence[Any] | None = None,
        mode: str = "sparse",
    ) -> Any:
        """The module without a share of its multiply-adds; `mode` sparse keeps its shapes, with zeros that stay zeros."""
        channels = self._channels.excluding(excluded_names(self.model, excludes))
        return self._iterative(channels, "removal_ratio", removal_ratio, threshold, spec_path, mode)


class OneStepPruningRunner(_ModuleRunner):
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
            raise invalid("search needs an eval_fn")
        calibrate = None if calibration_fn is None else lambda module: calibration_fn(module, *calib_args)
        names = excluded_names(self.model, excludes)
        candidates = self._channels.excluding(names).candidates(
            1 - ratio_of(removal_ratio),
            num_subnet,
            lambda module: number_of(eval_fn(module, *eval_args)),
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
        check_mode(mode)
        path = self._path(".search") if pruning_info_path is None else Path(pruning_info_path)
        if not path.exists():
            raise refusal("OPTIMIZER_SUBNET_ERROR", f"{path} does not exist", "Call search first")
        content = read_json(path)
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
            raise invalid(f"index is {index}, and the search has {len(subnets)} subnetworks")
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
            raise invalid(
                f"w_sparsity {w_sparsity}, a_sparsity {a_sparsity}, block_size {block_size}",
                "w_sparsity is 0, 0.5 or 0.75, a_sparsity 0 or 0.5, block_size 4, 8 or 16",
            )
        if a_sparsity and w_sparsity != 0.75:
            raise invalid("an a_sparsity of 0.5 needs a w_sparsity of 0.75")
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
    raise invalid(f"method is {method!r}", "Give 'iterative' or 'one_step'")


def _check_gpus(gpus: Any) -> None:
    if gpus:
        note("gpus: the functions of the caller decide where the model runs")
