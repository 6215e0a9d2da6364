"""Models combined into one program load the bytes that they loaded before, and weights that they share are stored once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.program.combine import blocks_of, combine, extract
from npuc.program.file import load_compiled, load_entries, save_compiled
from npuc.program.isa import BY_NAME
from npuc.program.layout import ALIGNMENT
from npuc.program.model import CompiledModel, NpuSubgraph
from support.programs.files import as_bytes, random_model


def loaded_bytes(model: CompiledModel) -> list[bytes]:
    """What loads and kernels in global memory read of the weights, in the order of the streams."""
    load, kernel = BY_NAME["load"], BY_NAME["custom_global"]
    pieces = []
    for part in model.subgraphs:
        for stream in part.streams if isinstance(part, NpuSubgraph) else ():
            for record in stream[stream[:, 0] == kernel.opcode].view(kernel.dtype)[:, 0]:
                for name in ("x", "b"):
                    start, size = int(record[name]), int(record[f"{name}_bytes"])
                    if record[f"{name}_segment"] == 0:
                        pieces.append(model.weights[start : start + size].tobytes())
            for row in stream[stream[:, 0] == load.opcode]:
                record = row.view(load.dtype)[0]
                if record["segment"] == 0:
                    pieces.append(_block(record, model.weights))
    return pieces


def _block(record: Array, weights: Array) -> bytes:
    sizes, strides = record["size"].tolist(), record["far_stride"].tolist()
    length = int(record["stored"]) or sizes[3]
    steps = np.indices(sizes[:3]).reshape(3, -1).T @ np.array(strides)
    return b"".join(weights[int(record["offset"]) + step :][:length].tobytes() for step in steps.tolist())


def rest(model: CompiledModel) -> CompiledModel:
    """The model without what combining may change."""
    subgraphs = tuple(
        replace(part, streams=()) if isinstance(part, NpuSubgraph) else part for part in model.subgraphs
    )
    return replace(model, weights=None, segments=model.segments[1:], subgraphs=subgraphs)  # type: ignore[arg-type]


def similar(model: CompiledModel, seed: int) -> CompiledModel:
    """Another program over weights of which the second half is the same."""
    other = random_model(seed)
    half = len(model.weights) // 2
    return replace(other, weights=np.concatenate([other.weights[:half], model.weights[half:]]))


@pytest.mark.parametrize("seed", range(6))
def test_every_load_brings_the_same_bytes(seed: int, tmp_path: Path) -> None:
    models = {
        "a": random_model(seed),
        "b": similar(random_model(seed), seed + 50),
        "c": random_model(seed + 99),
    }
    combined = combine(models)
    save_compiled(combined.entries, tmp_path / "all.npu")
    entries = load_entries(tmp_path / "all.npu")
    assert list(entries) == ["a", "b", "c"]
    for name, model in models.items():
        assert loaded_bytes(entries[name]) == loaded_bytes(model)
        assert rest(entries[name]) == rest(model)
        alone = extract(entries[name])
        assert (
            loaded_bytes(alone) == loaded_bytes(model) and alone.weights.size <= model.weights.size + 64 * 64
        )
    assert entries["a"].weights.size == combined.entries["c"].weights.size


def test_the_same_weights_are_stored_once() -> None:
    model = random_model(3)
    starts, ends = blocks_of(model)
    combined = combine({"one": model, "two": model, "three": random_model(3, target="server-32t")})
    assert combined.entries["two"].weights.size == model.weights.size
    assert combined.shared == {"one": 0, **dict.fromkeys(("two", "three"), int((ends - starts).sum()))}


def test_a_block_that_begins_elsewhere_is_found_at_the_same_remainder() -> None:
    """The same layers behind others: blocks are found by their bytes, wherever they are."""
    model = random_model(5, count=400)
    moved = extract(replace(model, weights=model.weights.copy()))
    shift = 3 * ALIGNMENT
    longer = np.concatenate([np.full(shift, 7, np.uint8), moved.weights])
    front = replace(
        random_model(6),
        weights=np.resize(longer, 5000 + shift),
        segments=(replace(model.segments[0], size=5000 + shift), *model.segments[1:]),
    )
    combined = combine({"front": front, "moved": moved})
    starts, ends = blocks_of(moved)
    large = ends - starts >= 2 * ALIGNMENT
    assert large.any() and combined.shared["moved"] >= int((ends - starts)[large].sum())
    assert loaded_bytes(combined.entries["moved"]) == loaded_bytes(moved)


def test_the_same_models_give_the_same_bytes(tmp_path: Path) -> None:
    def program() -> dict[str, CompiledModel]:
        return combine({"a": random_model(1), "b": random_model(2)}).entries

    for name in ("x.npu", "y.npu"):
        save_compiled(program(), tmp_path / name)
    assert (tmp_path / "x.npu").read_bytes() == (tmp_path / "y.npu").read_bytes()


def test_a_program_of_one_entry_without_a_name_is_what_it_always_was() -> None:
    model = random_model(4)
    assert as_bytes(model) == as_bytes({"net": model})


def test_an_entry_is_taken_by_name(tmp_path: Path) -> None:
    models = {"small": random_model(1), "große": random_model(2)}
    save_compiled(combine(models).entries, tmp_path / "both.npu")
    assert loaded_bytes(load_compiled(tmp_path / "both.npu")) == loaded_bytes(models["small"])
    assert loaded_bytes(load_compiled(tmp_path / "both.npu", entry="große")) == loaded_bytes(models["große"])
    with pytest.raises(UsageError, match=r"no entry 'tiny'.*small, große"):
        load_compiled(tmp_path / "both.npu", entry="tiny")


def test_models_of_two_targets_are_refused() -> None:
    with pytest.raises(UsageError, match=r"entry 'b' is for edge-1t.*'a' for server-32t"):
        combine({"a": random_model(), "b": random_model(target="edge-1t", cores=1)})
    with pytest.raises(UsageError, match="each with a name"):
        combine({"": random_model()})
    placed = [
        replace(model, segments=(replace(model.segments[0], address=address), *model.segments[1:]))
        for model, address in ((random_model(1), 0x1000), (random_model(2), 0x2000))
    ]
    with pytest.raises(UsageError, match="0x1000, 'b' at 0x2000"):
        combine({"a": placed[0], "b": placed[1]})
    assert combine({"a": placed[0], "c": random_model(2)}).entries["c"].segments[0].address == 0x1000
