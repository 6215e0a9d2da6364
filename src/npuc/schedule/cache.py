"""What searches found, kept under the user's cache folder: an unchanged network is not searched again.

An entry is named by a hash of all that a search looks at: the layers (not their weights), the machine, the options, and the
version of npuc. It holds decisions, not code, in the form of a schedule file with numbers for names, and is checked like
one; what is damaged or does not fit is passed over. Entries appear whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from npuc import __version__
from npuc.errors import OutputError, ScheduleError
from npuc.files import write_atomically
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Settled
from npuc.schedule.layers import Layer, Place, Tensor
from npuc.schedule.network import Network
from npuc.schedule.pieces import Cutter
from npuc.schedule.schedule_file import SubgraphEntry, entry_of, resolve
from npuc.target import Target

FORM = 1
"""Of entries; a change makes all older ones unknown."""
_MAX_BYTES = 16 << 20
_VALUES = frozenset(
    (
        "x_zero_point",
        "b_zero_point",
        "w_zero_point",
        "zero_point",
        "multiplier",
        "shift",
        "left",
        "lo",
        "hi",
        "value",
        "diff_min",
        "epsilon",
    )
)
"""Fields of instructions that are numbers of the arithmetic: no decision depends on them."""


@dataclass(frozen=True)
class Cache:
    """A folder of entries."""

    folder: Path

    @staticmethod
    def default() -> Cache | None:
        """That of the user: `NPUC_CACHE` names another folder, or is `off`."""
        asked = os.environ.get("NPUC_CACHE", "")
        if asked.lower() == "off":
            return None
        if asked:
            return Cache(Path(asked))
        home = os.environ.get("XDG_CACHE_HOME", "")
        with suppress(RuntimeError):  # no home
            return Cache((Path(home) if home.startswith("/") else Path.home() / ".cache") / "npuc")
        return None

    def path(self, key: str) -> Path:
        """Where an entry is."""
        return self.folder / "schedules" / key[:2] / f"{key}.json"

    def read(self, key: str, network: Network, target: Target) -> Settled | None:
        """What an earlier search found, if it is there and fits."""
        try:
            path = self.path(key)
            if path.stat().st_size > _MAX_BYTES:
                return None
            entry = SubgraphEntry.model_validate_json(path.read_bytes())
            names = [str(number) for number in range(len(network.layers))]
            return resolve(entry, network, target, target.compute.cores, names).settled
        except (OSError, ValidationError, ScheduleError, RecursionError):
            return None

    def write(self, key: str, found: Settled) -> None:
        """Keep what a search found; a folder that cannot be written is none of the user's worries."""
        path = self.path(key)
        count = max(group.last for group in found.decisions.groups)
        text = json.dumps(entry_of(found, [str(number) for number in range(count)]))
        with suppress(OSError, OutputError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as out:
                out.write(text.encode())


def key_of(network: Network, target: Target, options: Mapping[str, Any]) -> str:
    """The name of an entry."""
    seen: dict[Tensor, int] = {}
    cutter = Cutter(Costs(target))
    described = {
        "form": FORM,
        "npuc": __version__,
        "target": target.fingerprint_text,
        "options": options,
        "layers": [_layer(layer, cutter, seen) for layer in network.layers],
        "inputs": [_tensor(tensor, seen) for tensor in network.inputs],
        "outputs": [_tensor(tensor, seen) for tensor in network.outputs],
    }
    return sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def _tensor(tensor: Tensor, seen: dict[Tensor, int]) -> list[Any]:
    number = seen.setdefault(tensor, len(seen))
    view = _tensor(tensor.view_of, seen) if tensor.view_of is not None else None
    return [number, tensor.shape, tensor.dtype, view]


def _layer(layer: Layer, cutter: Cutter, seen: dict[Tensor, int]) -> list[Any]:
    whole = cutter.whole(layer)
    piece = cutter.piece(layer, whole, (0, layer.channels))
    drafts = [
        [draft.opcode, draft.queue, {key: _plain(f) for key, f in draft.fields.items() if key not in _VALUES}]
        for draft in layer.draft(piece)
    ]
    return [
        layer.kind,
        [_tensor(tensor, seen) for tensor in (*layer.inputs, *layer.outputs)],
        [layer.granule, layer.channels, layer.channel_step, layer.in_place, layer.need is None],
        [layer.constant_size((0, layer.channels)), layer.scratch(whole)],
        drafts,
    ]


def _plain(value: Any) -> Any:
    return [value.slot, value.offset] if isinstance(value, Place) else value
