"""Whole explorations: against exhaustive search, by every way to run, killed and resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import UsageError
from npuc.explore import Coefficients, Exploration, ExploredNetwork, SearchOptions, Space, explore
from npuc.explore.results import table, write_results
from npuc.ir import load_graph
from npuc.sim import simulate
from npuc.target import load_target
from support.networks.small_onnx import image_model

SPACE = {
    "lanes": ["2x2x2", "4x4x2"],
    "vector_lanes": [2, 8],
    "local_memory": ["6KiB", "32KiB"],
    "banks": [2, 5],
    "bandwidth": ["2GB/s", "8GB/s"],
    "cores": [1, 2],
}
"""64 combinations, of which half (five banks) are no machines."""


@pytest.fixture(scope="module")
def networks(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[ExploredNetwork]:
    path = tmp_path_factory.mktemp("explore") / "image.onnx"
    onnx.save(image_model(), str(path))
    return [ExploredNetwork(root / "examples" / "digits.onnx", 3.0), ExploredNetwork(path)]


@pytest.fixture(scope="module")
def space() -> Space:
    return Space.of(load_target("edge-1t"), SPACE)


@pytest.fixture(scope="module")
def whole(
    networks: list[ExploredNetwork], space: Space, tmp_path_factory: pytest.TempPathFactory
) -> Exploration:
    """With as many compilations as it likes."""
    return explore(networks, space, tmp_path_factory.mktemp("whole"), options=SearchOptions(machines=64))


def _by_hand(networks: list[ExploredNetwork], space: Space, folder: Path) -> dict[int, tuple[float, ...]]:
    """Every machine compiled for, by the compiler's own entrance."""
    files = [folder / "networks" / f"{number}.mlir" for number in range(len(networks))]
    results: dict[int, tuple[float, ...]] = {}
    for number in range(space.size):
        if space.values(number)["banks"] == "5":
            continue
        target = space.target(number)
        seconds = []
        for file in files:
            model = compile_program(load_graph(file), target, CompileOptions(level=2)).model
            seconds.append(simulate(model).total / 1e9)
        mean = seconds[0] ** 0.75 * seconds[1] ** 0.25
        memory = target.compute.cores * target.memory.local.size
        results[number] = (mean, float(memory), Coefficients().area(target))
    return results


def test_the_front_is_that_of_exhaustive_search(
    networks: list[ExploredNetwork], space: Space, tmp_path: Path
) -> None:
    found = explore(
        networks,
        space,
        tmp_path,
        objectives=("time", "memory", "area"),
        options=SearchOptions(machines=31),
    )
    assert found.is_proven and len(found.refused) == 32 and len(found.numbers) == 32
    # It is no search if everything is compiled for, and none if one round finds all.
    assert len(found.reached) < 28 and len(found.front) > 8
    all_machines = _by_hand(networks, space, tmp_path)
    points = {number: np.array(row) for number, row in all_machines.items()}
    wanted = {
        number
        for number, point in points.items()
        if not any((other <= point).all() and (other < point).any() for other in points.values())
    }
    front = {int(found.numbers[machine]): found.reached[machine] for machine in found.front}
    assert front.keys() == wanted
    for number, row in front.items():
        np.testing.assert_allclose(row[[0, 2, 3]], points[number], rtol=1e-12)


def test_figures_never_go_below_their_bounds(whole: Exploration) -> None:
    assert whole.beaten == () and len(whole.reached) > 10
    for machine, row in whole.reached.items():
        assert (row >= whole.bounds[machine]).all() and (row[2:4] == whole.bounds[machine][2:4]).all()


def test_what_is_left_open_is_said(
    networks: list[ExploredNetwork], space: Space, whole: Exploration, tmp_path: Path
) -> None:
    found = explore(networks[:1], space, tmp_path, options=SearchOptions(machines=3))
    assert not found.is_proven and len(found.reached) == 3 and found.search.open
    assert 3 < len(found.search.quick) <= 6
    states = [row["state"] for row in table(found)]
    assert states.count("open") == len(found.search.open) and "front" in states


def _killer(
    victim: Callable[[], int], after: int = 5
) -> tuple[Callable[[str, int], Callable[[], None]], list[int]]:
    """What kills a worker when some networks were compiled."""
    done, killed = [0], []

    def begin(label: str, total: int) -> Callable[[], None]:
        def step() -> None:
            done[0] += label.startswith("compiling")
            if done[0] == after and not killed:
                killed.append(victim())
                os.kill(killed[0], signal.SIGKILL)

        return step

    return begin, killed


def test_one_process_many_and_dask_give_the_same_files(
    networks: list[ExploredNetwork], space: Space, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask's distributed is not installed")
    options: dict[str, Any] = {"options": SearchOptions(machines=6)}

    def files(name: str, **how: Any) -> dict[str, bytes]:
        found = explore(networks, space, tmp_path / name, **options, **how)
        write_results(found, tmp_path / name)
        paths = [p for p in (tmp_path / name).rglob("*") if p.is_file() and p.name != "journal"]
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in paths}

    alone = files("alone")
    assert {"machines.csv", "explore.html"} < alone.keys() and sum(
        name.endswith(".yaml") for name in alone
    ) == 6
    begin, killed = _killer(lambda: multiprocessing.active_children()[0].pid or 0)
    assert files("processes", workers=2, begin=begin) == alone and killed
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        begin, killed = _killer(lambda: cluster.workers[0].process.pid)
        assert files("dask", cluster=cluster.scheduler_address, begin=begin) == alone and killed


class _Stop(Exception):
    pass


def test_a_killed_exploration_goes_on_where_it_ended(
    networks: list[ExploredNetwork], space: Space, tmp_path: Path
) -> None:
    options = SearchOptions(machines=4)

    def begin(label: str, total: int) -> Callable[[], None]:
        def step() -> None:
            if label.startswith("compiling") and len((tmp_path / "journal").read_bytes().splitlines()) == 6:
                raise _Stop

        return step

    with pytest.raises(_Stop):
        explore(networks, space, tmp_path, options=options, begin=begin)
    compiled = len((tmp_path / "journal").read_bytes().splitlines()) - 1
    assert compiled == 5
    again = explore(networks, space, tmp_path, options=options)
    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()[1:]]
    assert len({line["sample"] for line in lines}) == len(lines)
    fresh = explore(networks, space, tmp_path / "fresh", options=options)
    assert list(table(again)) == list(table(fresh))
    with pytest.raises(UsageError, match=r"is of a run with other networks or machines.*-o another folder"):
        explore(networks[:1], space, tmp_path, options=options)


def test_target_files_are_the_machines(whole: Exploration, tmp_path: Path) -> None:
    write_results(whole, tmp_path)
    for machine in whole.reached:
        number = int(whole.numbers[machine])
        target = load_target(tmp_path / "targets" / f"{whole.space.name(number)}.yaml")
        assert target.fingerprint == whole.space.target(number).fingerprint
        assert target.name == whole.space.name(number)


def test_narrow_weights_are_fewer_bytes(networks: list[ExploredNetwork], tmp_path: Path) -> None:
    space = Space.of(load_target("edge-1t"), {"cores": [1], "bits": ["8x8", "8x4"]})
    found = explore(networks[:1], space, tmp_path, objectives=("time", "bytes"))
    assert found.reached[1][1] < 0.7 * found.reached[0][1] and 1 in found.front


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objectives": ("speed",)}, "speed is no choice of objectives"),
        ({"objectives": ()}, "is no choice of objectives"),
        ({"options": SearchOptions(machines=0)}, "at least one machine"),
    ],
)
def test_mistakes_are_named(
    networks: list[ExploredNetwork], space: Space, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        explore(networks, space, tmp_path, **changes)
    with pytest.raises(UsageError, match="no combination"):
        explore(networks, Space.of(load_target("edge-1t"), {"banks": [3]}), tmp_path)
