"""A schedule as a YAML file: what the compiler decided, and what it is told to decide.

    max_halo: 0.25
    subgraphs:
      npu1:
        groups:
        - {layers: [conv1, conv2], tiles: 4, resident_weights: true, resident_results: false}

Everything may be left out, and is then searched for. What stands above `subgraphs` holds for all of them. A file that
`describe` made states everything, and gives the same program again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    create_model,
)

from npuc.errors import ScheduleError
from npuc.files import read_short
from npuc.format_versions import SCHEDULE_FILE
from npuc.plain_yaml import load_yaml
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Decisions, Group, Placing, PrefetchPolicy, ScheduleDecisions
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import NotCut
from npuc.schedule.network import Network
from npuc.schedule.pins import Pins
from npuc.schedule.regions import region_memory
from npuc.schedule.tiler import Choices, Tiler
from npuc.target import Target

_MAX_BYTES = 16 << 20
_MOST_TILES = 1 << 14
"""Of a group that is cut by columns or channels: each is at least an instruction."""
_STRICT = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class GroupEntry(BaseModel):
    """A group of layers."""

    model_config = _STRICT

    layers: list[str] = Field(min_length=1)
    """Names, in the order in which they run."""
    tiles: PositiveInt = 1
    resident_weights: bool = True
    """Constants are loaded once for all tiles, or once for each."""
    moved: bool = False
    """A layer that moves elements from DRAM to DRAM in blocks."""
    by_channels: bool = False
    """A layer whose output channels are shared out among cores."""
    alone: bool = False
    """Its tiles are not shared out among cores."""
    keeps_seams: bool = False
    """Rows that a tile and the next both need are kept."""
    column_tiles: PositiveInt = 1
    """Each tile of rows is cut into so many of columns."""
    channel_tiles: PositiveInt = 1
    """And into so many of output channels."""
    by_inputs: bool = False
    """A fully connected layer that is cut by its input channels, whose parts add up."""
    resident_results: bool | None = None
    """What later groups read stays in local memory."""


ChoiceEntry: Any = create_model(
    "ChoiceEntry",
    __config__=_STRICT,
    **{field.name: (PositiveInt | None, None) for field in fields(Choices)},  # type: ignore[call-overload]
)
"""Some fields of `Choices`."""


class PrefetchEntry(BaseModel):
    """Loads just in time: the fields of `PrefetchPolicy`."""

    model_config = _STRICT

    memory: PositiveInt
    margin: float = Field(ge=0, le=1)
    placing: Placing


class SubgraphEntry(BaseModel):
    """The pins of one subgraph."""

    model_config = _STRICT

    local_memory: PositiveInt | None = None
    """Bytes of local memory of a core that may be used at most."""
    memory: PositiveInt | None = None
    """Bytes of local memory that groups are planned with."""
    cores: PositiveInt | None = None
    """Cores that share the work."""
    choices: ChoiceEntry = ChoiceEntry.model_construct()
    far: NonNegativeInt | None = None
    """Tensors that are needed more than this many layers later go to DRAM in between; 0: none do for that reason."""
    max_halo: NonNegativeFloat | None = None
    """The work that groups may do twice at the seams of tiles, as a part of theirs."""
    groups: list[GroupEntry] = []
    late: PrefetchEntry | None = None
    """Of a schedule that states everything: how loads are put off, so that it takes less memory."""


class ScheduleFile(SubgraphEntry):
    """A whole file; the fields beside `subgraphs` are for all of them."""

    version: Literal[1] = 1
    """Of the format; a file without it has the first."""
    target: str | None = None
    """The machine that it was made for, for the reader."""
    subgraphs: dict[str, SubgraphEntry] = {}

    @staticmethod
    def load(path: Path | str) -> ScheduleFile:
        """Read a file."""
        text = read_short(path, _MAX_BYTES, "a schedule", ScheduleError)
        try:
            data = load_yaml(text) or {}
            if isinstance(data, Mapping):
                SCHEDULE_FILE.check(data.get("version"), str(path), ScheduleError)
            return ScheduleFile.model_validate(data)
        except yaml.YAMLError as error:
            raise ScheduleError(f"is not YAML: {' '.join(str(error).split())}", where=str(path)) from error
        except ValidationError as error:
            raise _invalid(error, str(path)) from error

    def for_subgraph(self, name: str) -> SubgraphEntry:
        """The pins of a subgraph together with those for all."""
        own = self.subgraphs.get(name) or SubgraphEntry.model_construct()
        changes: dict[str, Any] = {
            key: getattr(self, key)
            for key in ("local_memory", "memory", "cores", "far", "max_halo", "late")
            if getattr(own, key) is None and getattr(self, key) is not None
        }
        changes["choices"] = own.choices.model_copy(
            update={
                key: value
                for key, value in self.choices
                if getattr(own.choices, key) is None and value is not None
            }
        )
        changes["groups"] = [*self.groups, *own.groups]
        return own.model_copy(update=changes)

    @property
    def least_local_memory(self) -> int | None:
        """The smallest limit of local memory that is stated."""
        limits = [self.local_memory, *(entry.local_memory for entry in self.subgraphs.values())]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def by_inputs(self) -> set[str]:
        """Layers that are to be cut by their input channels."""
        groups = [*self.groups, *(group for entry in self.subgraphs.values() for group in entry.groups)]
        return {name for group in groups if group.by_inputs for name in group.layers}

    def check_names(self, networks: Mapping[str, Network]) -> None:
        """Every subgraph and layer that is named is there."""
        for name, entry in self.subgraphs.items():
            if name not in networks:
                raise ScheduleError(
                    f"there is no subgraph '{name}' on the NPU", fix=near(name, list(networks), "They are")
                )
            _check_layers(entry.groups, [layer.name for layer in networks[name].layers], name)
        every = [layer.name for network in networks.values() for layer in network.layers]
        _check_layers(self.groups, every, None)


@dataclass(frozen=True)
class Wanted:
    """What a file says of one subgraph."""

    fixed: Mapping[str, Any]
    """Arguments of `npuc.schedule.search.assembled` that are not searched for."""
    schedule_decisions: ScheduleDecisions | None = None
    """Everything, if nothing is left open."""


def check_machine(entry: SubgraphEntry, target: Target, cores: int) -> None:
    """`ScheduleError` if a machine does not have what is asked for."""
    if (entry.cores or 1) > cores:
        raise ScheduleError(f"cores: {entry.cores} are asked for, and there are {cores}")
    whole = int(target.memory.local.size)
    for name in ("local_memory", "memory"):
        stated = getattr(entry, name)
        if stated is not None and stated > whole:
            raise ScheduleError(
                f"{name}: {stated} bytes are asked for, and {target.name} has {whole} bytes of local memory"
            )


def resolve(
    entry: SubgraphEntry,
    network: Network,
    target: Target,
    cores: int = 1,
    names: Sequence[str] | None = None,
    local_memory: int | None = None,
) -> Wanted:
    """The pins of a subgraph as its search takes them; `ScheduleError` if layers or memory do not allow them.

    `cores` and `local_memory` may be used; `names` are those of the layers, if not their own.
    """
    check_machine(entry, target, cores)
    whole = int(target.memory.local.size)
    local = min(whole if entry.local_memory is None else entry.local_memory, local_memory or whole)
    late_memory = entry.late.memory if entry.late is not None else None
    for name, size in (("memory", entry.memory), ("late.memory", late_memory)):
        if size is not None and size > local:
            raise ScheduleError(
                f"{name}: {size} bytes are asked for, and {local} bytes of local memory may be used"
            )
    given = {key: value for key, value in entry.choices if value is not None}
    choices = replace(Choices(), **given) if given else None
    room = entry.memory or local
    several = (entry.cores or cores) > 1
    grouping = Grouping(network, Tiler(Costs(target), choices or Choices()), room, several_cores=several)
    names = [layer.name for layer in network.layers] if names is None else names
    index = {name: number for number, name in enumerate(names)}
    groups: dict[int, Group] = {}
    cuts: dict[int, bool] = {}
    for group_entry in entry.groups:
        if group_entry.layers[0] not in index:
            continue  # of another subgraph
        first, last = _span(group_entry, index, names)
        for other in groups.values():
            if other.first < last and first < other.last:
                both = names[max(first, other.first)]
                raise ScheduleError(f"layer '{both}' is in two groups", where=_words(group_entry))
        group = Group(first, last, **group_entry.model_dump(exclude={"layers", "resident_results"}))
        if (group.by_channels or group.alone) and last - first > 1:
            raise ScheduleError(
                "only a single layer can be cut by channels or be alone", where=_words(group_entry)
            )
        if group.by_inputs and (last - first > 1 or not network.layers[first].sums):
            raise ScheduleError(
                "it cannot be cut by input channels",
                where=_words(group_entry),
                fix="Only a single fully connected layer of one row can, with sums of 32 bits",
            )
        _check_fit(grouping, group, group_entry, target.name)
        if group.tile_count == 1:
            # Several layers of one tile are layers that run whole and keep what is between them.
            cuts.update(dict.fromkeys(range(first + 1, last), True))
            groups.update({at: replace(group, first=at, last=at + 1) for at in range(first, last)})
        else:
            groups[first] = group
        if group_entry.resident_results is not None and last < len(names):
            cuts[last] = group_entry.resident_results
    cuts.update(_cuts_at_regions(list(groups.values()), cuts, names))
    halo = inf if entry.max_halo is None else entry.max_halo
    pins = Pins(tuple(groups[at] for at in sorted(groups)), cuts, halo)
    count = entry.cores
    decisions = pins.complete(len(names), entry.far or 0)
    stated_whole = decisions is not None and entry.memory is not None
    if any(cuts.values()) and not (stated_whole and (count or 1) > 1):
        if (count or 1) > 1:
            raise ScheduleError(
                "results stay in local memory on one core only, unless the schedule states all groups and `memory`",
                fix="Write cores: 1",
            )
        count = 1
    if decisions is not None and entry.memory is not None and count is not None:
        prefetch = PrefetchPolicy(**entry.late.model_dump()) if entry.late is not None else None
        capped = 0 if local == whole else local
        return Wanted(
            {}, ScheduleDecisions(decisions, choices or Choices(), entry.memory, count, capped, prefetch)
        )
    if entry.late is not None:
        raise ScheduleError(
            "late: it holds for one program, so the schedule has to state everything else too",
            fix="Leave `late` out: the search finds its own",
        )
    fixed = {"choices": choices, "memory": entry.memory, "spill_distance": entry.far, "cores": count}
    if local < (local_memory or whole):
        fixed["local_memory"] = local
    search_options: dict[str, Any] = {key: value for key, value in fixed.items() if value is not None}
    if pins != Pins():
        search_options["pins"] = pins
    return Wanted(search_options)


def _cuts_at_regions(
    groups: Sequence[Group], cuts: Mapping[int, bool], names: Sequence[str]
) -> dict[int, bool]:
    """Operands of groups that are cut by columns or channels come from DRAM, and their results go there."""
    at_regions = {cut for group in groups if group.has_regions for cut in (group.first, group.last)}
    inside = sorted(cut for cut in at_regions if 0 < cut < len(names))
    for cut in inside:
        if cuts.get(cut):
            raise ScheduleError(
                f"what '{names[cut - 1]}' and the layers before it leave cannot stay in local memory: tiles of columns or "
                "channels take their operands from DRAM, and leave their results there",
                fix="Write resident_results: false, or leave it out",
            )
    return dict.fromkeys(inside, False)


def describe(schedule_decisions: Mapping[str, tuple[ScheduleDecisions, Sequence[str]]], target: str) -> str:
    """The file that gives the same schedule again: subgraph to what was found and the names of its layers."""
    document = {
        "version": SCHEDULE_FILE.version,
        "target": target,
        "subgraphs": {
            name: entry_of(decisions, names) for name, (decisions, names) in schedule_decisions.items()
        },
    }
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )


class _Dumper(yaml.SafeDumper):
    """Lists of groups one a line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def entry_of(schedule_decisions: ScheduleDecisions, names: Sequence[str]) -> dict[str, Any]:
    """What was found about a subgraph, as plain data that `SubgraphEntry` reads."""
    decisions: Decisions = schedule_decisions.decisions
    groups = []
    for number, group in enumerate(decisions.groups):
        group_data = group.describe(list(names))
        if number < len(decisions.resident):
            group_data["resident_results"] = decisions.resident[number]
        groups.append(group_data)
    return {
        **({"local_memory": schedule_decisions.local_memory} if schedule_decisions.local_memory else {}),
        "memory": schedule_decisions.memory,
        "cores": schedule_decisions.cores,
        "choices": asdict(schedule_decisions.choices),
        "far": decisions.spill_distance,
        **({"late": asdict(schedule_decisions.prefetch)} if schedule_decisions.prefetch is not None else {}),
        "groups": groups,
    }


def _span(group_entry: GroupEntry, index: Mapping[str, int], names: Sequence[str]) -> tuple[int, int]:
    """The first layer of a group and the one behind its last."""
    first = index[group_entry.layers[0]]
    last = first + len(group_entry.layers)
    for expected, name in zip(
        [*names[first:last], *[""] * len(group_entry.layers)], group_entry.layers, strict=False
    ):
        if expected != name:
            previous = group_entry.layers[group_entry.layers.index(name) - 1]
            successor = f"'{expected}'" if expected else "nothing"
            raise ScheduleError(
                f"its layers do not follow each other: after '{previous}' runs {successor}, not '{name}'",
                where=_words(group_entry),
                fix="A group is a row of layers in the order in which they run",
            )
    return first, last


def _check_fit(grouping: Grouping, group: Group, group_entry: GroupEntry, target: str) -> None:
    """Whether a group can be cut so, and fits local memory if nothing else is there."""
    layers = grouping.network.layers
    if group.moved:
        if group.last - group.first > 1 or grouping.moved_cost(group.first) == inf:
            raise ScheduleError(
                "only a single layer that copies elements, or works in global memory, can be moved",
                where=_words(group_entry),
            )
        return
    if group.has_regions:
        _check_regions(grouping, group, group_entry, target)
        return
    if group.tiles == 1:
        for at in range(group.first, group.last):
            need = grouping.whole_memory(at, False, False)
            _check_bytes(
                need, grouping, group_entry, target, f"layer '{layers[at].name}' as a whole", "Use more tiles"
            )
        return
    for at in range(group.first, group.last):
        if grouping.is_loaded(at, group.first, group.last):
            continue
        if not layers[at].by_rows or len(layers[at].outputs) != 1:
            raise ScheduleError(
                f"layer '{layers[at].name}' ({layers[at].kind}) cannot be cut into tiles of rows",
                where=_words(group_entry),
            )
    if grouping.tile_rows(group.first, group.last, group.tiles, 0) is None:
        rows = layers[group.last - 1].outputs[0].rows
        why = f"the result of '{layers[group.last - 1].name}' has {rows} rows"
        if rows >= group.tiles:
            why = "a layer reads a result of the group as a whole, or one that leaves it has too few rows"
        raise ScheduleError(f"it cannot be cut into {group.tiles} tiles: {why}", where=_words(group_entry))
    need = int(
        grouping.tiled_memory(
            group.first, group.last, group.tiles, False, False, group.resident_weights, group.keeps_seams, 1
        )
    )
    lever = "Use more tiles" + (", or resident_weights: false" if group.resident_weights else "")
    _check_bytes(need, grouping, group_entry, target, f"a tile of {group.tiles}", lever)


def _check_regions(grouping: Grouping, group: Group, group_entry: GroupEntry, target: str) -> None:
    """The same for tiles of columns and channels."""
    if group.by_channels or group.by_inputs:
        raise ScheduleError(
            "by_channels and by_inputs go without column_tiles and channel_tiles", where=_words(group_entry)
        )
    axes = (group.tiles, "rows"), (group.column_tiles, "columns"), (group.channel_tiles, "channels")
    what = " x ".join(f"{count} of {axis}" for count, axis in axes if count > 1)
    if group.tile_count > _MOST_TILES:
        raise ScheduleError(f"it would have more than {_MOST_TILES} tiles", where=_words(group_entry))
    try:
        need = region_memory(grouping, group)
    except NotCut as error:
        raise ScheduleError(
            f"it cannot be cut into tiles, {what}: {error}", where=_words(group_entry)
        ) from error
    lever = "Use more tiles" + (", or resident_weights: false" if group.resident_weights else "")
    _check_bytes(need, grouping, group_entry, target, f"a tile ({what})", lever)


def _check_bytes(
    need: int, grouping: Grouping, group_entry: GroupEntry, target: str, what: str, lever: str
) -> None:
    if need > grouping.capacity:
        raise ScheduleError(
            f"{what} needs {need} bytes of local memory, and {grouping.capacity} are available on {target}",
            where=_words(group_entry),
            fix=lever,
        )


def _check_layers(groups: Sequence[GroupEntry], known: Sequence[str], subgraph: str | None) -> None:
    where = f" of subgraph '{subgraph}'" if subgraph else " on the NPU"
    names = set(known)
    for group_entry in groups:
        for name in group_entry.layers:
            if name not in names:
                raise ScheduleError(
                    f"there is no layer '{name}'{where}",
                    where=_words(group_entry),
                    fix=near(name, known, "The first are"),
                )


def near(name: str, known: Sequence[str], otherwise: str) -> str:
    """The names that a user may have meant."""
    matches = get_close_matches(name, known, n=3, cutoff=0.4)
    return (
        f"The nearest names are {', '.join(matches)}"
        if matches
        else f"{otherwise} {', '.join(known[:5]) or 'none'}"
    )


def _words(group_entry: GroupEntry) -> str:
    more = f" to '{group_entry.layers[-1]}'" if len(group_entry.layers) > 1 else ""
    return f"group of '{group_entry.layers[0]}'{more}"


def _invalid(error: ValidationError, where: str) -> ScheduleError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    fix = None
    if first["type"] == "extra_forbidden":
        parts = (ScheduleFile, GroupEntry, ChoiceEntry, PrefetchEntry)
        known = [name for part in parts for name in part.model_fields]
        fix = near(str(first["loc"][-1]), known, "Fields are")
    return ScheduleError(f"field '{field}': {first['msg']}", where=where, fix=fix)
