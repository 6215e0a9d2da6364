"""`OFAPruner`: once-for-all under the vendor's names, on npuc's elastic modules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuc.compat.vitis.notices import refusal
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of
from npuc.compat.vitis.pytorch_nndct.names import excluded_names
from npuc.errors import FileFormatError, FileMissingError, NpucError
from npuc.files import read_short, write_atomically
from npuc.ir import shown_name, top
from npuc.train.modules.channels import ModuleChannels
from npuc.train.modules.elastic import ElasticModule, search_subnets

__all__ = ["OFAPruner"]

_LARGEST_FILE = 16 << 20
_MILLION = 1e6


class OFAPruner:
    """Makes a module elastic, samples subnetworks for the user's training loop, searches and cuts them out."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model = module_of(model)
        self._channels = ModuleChannels(self.model, arguments_tuple(inputs))
        self._rng = np.random.default_rng(0)

    def ofa_model(
        self,
        expand_ratio: Sequence[float] = (0.5, 0.75, 1),
        channel_divisible: int = 8,
        excludes: Sequence[Any] | None = None,
        auto_add_excludes: bool = True,
        save_search_space: bool = False,
    ) -> ElasticModule:
        """The module with widths of these ratios, each a multiple of `channel_divisible`."""
        ratios = [float(ratio) for ratio in expand_ratio]
        if not ratios or not all(0 < ratio <= 1 for ratio in ratios) or channel_divisible < 1:
            raise _invalid(
                f"expand_ratio {list(expand_ratio)}, channel_divisible {channel_divisible}",
                "Ratios are more than 0 and at most 1",
            )
        names = excluded_names(self.model, excludes)
        if auto_add_excludes:
            convolutions = [
                shown_name(op)
                for op in self._channels.dependencies.graph.ops
                if isinstance(op, top.Conv | top.Deconv)
            ]
            names += convolutions[:1] + convolutions[-1:]
        channels = self._channels.excluding(names)
        choices = {
            group.name: [_divisible(group.size, ratio, channel_divisible) for ratio in ratios]
            for group in channels.dependencies.groups
        }
        elastic = ElasticModule(channels, choices)
        if save_search_space:
            self.save_subnet_config(elastic.choices, "searchspace.config")
        return elastic

    def sample_subnet(self, model: ElasticModule, mode: str) -> tuple[ElasticModule, dict[str, int]]:
        """Make a subnetwork active: 'max', 'min' or 'random'; the module computes it until the next one is sampled."""
        draws: dict[str, Callable[[], dict[str, int]]] = {
            "max": lambda: model.largest,
            "min": lambda: model.smallest,
            "random": lambda: model.drawn(self._rng),
        }
        if mode not in draws:
            raise _invalid(f"mode is {mode!r}", "Give 'max', 'min' or 'random'")
        model.active = draws[mode]()
        return model, dict(model.active)

    def sample_random_subnet(self, model: ElasticModule) -> tuple[ElasticModule, dict[str, int]]:
        """`sample_subnet` with 'random'."""
        return self.sample_subnet(model, "random")

    def reset_bn_running_stats_for_calibration(self, model: ElasticModule) -> None:
        """Batch norms begin anew."""
        model.reset_statistics()

    def run_evolutionary_search(
        self,
        model: ElasticModule,
        calibration_fn: Callable[..., Any],
        calib_args: Iterable[Any],
        eval_fn: Callable[..., Any],
        eval_args: Iterable[Any],
        evaluation_metric: str,
        min_or_max_metric: str,
        min_macs: float | None = None,
        max_macs: float | None = None,
        macs_step: float = 10,
        parent_popu_size: int = 16,
        iteration: int = 10,
        mutate_size: int = 8,
        mutate_prob: float = 0.2,
        crossover_size: int = 4,
        min_mac: float | None = None,
        max_mac: float | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The best subnetwork of each segment between `min_macs` and `max_macs` (millions), by the lower end of the segment."""
        least = min_mac if min_macs is None else min_macs
        most = max_mac if max_macs is None else max_macs
        if min_or_max_metric not in ("min", "max"):
            raise _invalid(f"min_or_max_metric is {min_or_max_metric!r}", "Give 'max' or 'min'")
        if least is None or most is None or not 0 <= least < most or macs_step <= 0:
            raise _invalid(
                f"min_macs {least}, max_macs {most}, macs_step {macs_step}",
                "They are millions of multiply-adds",
            )
        sign = 1 if min_or_max_metric == "max" else -1

        def measure(elastic: ElasticModule) -> float:
            elastic.reset_statistics()
            calibration_fn(elastic, *calib_args)
            return sign * float(eval_fn(elastic, *eval_args))

        begins = list(np.arange(least, most, macs_step))
        ranges = [(begin * _MILLION, min(begin + macs_step, most) * _MILLION) for begin in begins]
        best = search_subnets(
            model,
            ranges,
            measure,
            population=parent_popu_size,
            generations=iteration,
            mutations=mutate_size,
            mutation=mutate_prob,
            crossovers=crossover_size,
        )
        return {
            f"{begin:g}": {
                "net_id": subnet.name,
                "mode": "evaluate",
                evaluation_metric: sign * subnet.score,
                "macs": subnet.macs / _MILLION,
                "params": _parameters(model.cut(subnet.widths)) / _MILLION,
                "subnet_setting": subnet.widths,
            }
            for begin, subnet in zip(begins, best, strict=True)
            if subnet is not None
        }

    def save_subnet_config(self, setting_config: Mapping[str, Any], file_name: Path | str) -> None:
        """Write settings as JSON."""
        with write_atomically(Path(file_name)) as out:
            out.write((json.dumps(setting_config, indent=1) + "\n").encode())

    def load_subnet_config(self, file_name: Path | str) -> dict[str, Any]:
        """Read settings."""
        path = Path(file_name)
        if not path.is_file():
            raise FileMissingError("does not exist", where=str(path))
        try:
            content = json.loads(read_short(path, _LARGEST_FILE, path.name, FileFormatError))
        except ValueError as error:
            raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
        if not isinstance(content, dict):
            raise FileFormatError("has no settings of subnetworks", where=str(path))
        return content

    def get_static_subnet(
        self, model: ElasticModule, subnet_setting: Mapping[str, int]
    ) -> tuple[Any, dict[str, int], float, float]:
        """A subnetwork as a module of its own, its setting, and its millions of multiply-adds and parameters."""
        if not isinstance(subnet_setting, Mapping):
            raise _invalid("the setting of a subnetwork is a dictionary of widths")
        setting = {str(name): int(width) for name, width in subnet_setting.items()}
        static = model.cut(setting)
        return static, setting, model.channels.macs(setting) / _MILLION, _parameters(static) / _MILLION


def _invalid(text: str, fix: str = "") -> NpucError:
    return refusal("OPTIMIZER_INVALID_ARGUMENT_ERROR", text, fix)


def _divisible(size: int, ratio: float, divisor: int) -> int:
    """A share of a width, as a multiple of a divisor, and not more than 10 % below the share."""
    if ratio == 1:
        return size
    width = max(divisor, int(size * ratio + divisor / 2) // divisor * divisor)
    return min(size, width + divisor if width < 0.9 * size * ratio else width)


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
