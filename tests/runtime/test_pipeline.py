"""Pipelines keep the order, bound what is on its way, and end whole."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.program.model import CompiledModel
from npuc.runtime import Pipeline, Runner, Stage
from npuc.runtime.postprocess import top_k


def test_results_keep_the_order() -> None:
    rng = random.Random(0)

    def slowly(x: int) -> int:
        time.sleep(rng.random() / 500)
        return x + 1

    pipeline = Pipeline(Stage(slowly, workers=4), Stage(lambda x: x * 2, depth=1), Stage(slowly, workers=3))
    for _ in range(2):
        assert list(pipeline.run(range(100))) == [2 * (x + 1) + 1 for x in range(100)]
    assert list(pipeline.run([])) == []


def test_what_is_on_its_way_is_bounded() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for x in range(1000):
            taken += 1
            yield x

    results = Pipeline(Stage(lambda x: x, workers=2, depth=3), Stage(lambda x: x)).run(items())
    assert next(results) == 0
    time.sleep(0.05)
    assert taken <= 1 + (2 + 3) + (1 + 2) + 1
    results.close()
    assert threading.active_count() == 1 or not any(t.name.startswith("npuc-") for t in threading.enumerate())


def test_an_error_comes_in_its_turn() -> None:
    def third(x: int) -> int:
        if x == 3:
            raise ValueError("three")
        return x

    seen: list[int] = []
    with pytest.raises(ValueError, match="three"):
        for x in Pipeline(Stage(third, workers=2), Stage(lambda x: x)).run(range(100)):
            seen.append(x)
    assert seen == [0, 1, 2]

    def broken() -> Iterator[int]:
        yield 0
        raise OSError("the camera is gone")

    results = Pipeline(Stage(third)).run(broken())
    assert next(results) == 0
    with pytest.raises(OSError, match="the camera is gone"):
        next(results)
    assert not any(thread.name.startswith("npuc-") for thread in threading.enumerate())


def test_bad_stages() -> None:
    with pytest.raises(UsageError):
        Pipeline()
    with pytest.raises(UsageError, match="stage 'draw'"):
        Pipeline(Stage(str, workers=0, name="draw"))


def test_around_a_runner(model: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(model, workers=2) as runner:
        stages = (
            Stage(lambda image: image[None], name="prepare"),
            Stage(runner.run, workers=2),
            Stage(lambda outputs: int(top_k(outputs["logits"][0], 1)[0][0]), name="best"),
        )
        assert list(Pipeline(*stages).run(images[:32])) == expected.argmax(axis=1).tolist()
