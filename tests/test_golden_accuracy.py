"""Golden accuracies: a fast part in every run, the whole with `make test-slow`."""

from __future__ import annotations

import pytest

from golden_accuracy import Golden, load, measured, present

GOLDEN = load()


def _check(golden: Golden) -> None:
    if not present(golden):
        pytest.skip("its model or its data, in the shared folder, is not here")
    for name, value in measured(golden).items():
        kept, tolerance = golden.figures[name]
        assert abs(value - kept) <= tolerance + 1e-9, (
            f"{golden.name}: {name} is {value:.4f}, and {kept} is kept"
        )


@pytest.mark.parametrize("golden", [one for one in GOLDEN if one.fast], ids=lambda one: one.name)
def test_fast(golden: Golden) -> None:
    _check(golden)


@pytest.mark.slow
@pytest.mark.parametrize("golden", [one for one in GOLDEN if not one.fast], ids=lambda one: one.name)
def test_all(golden: Golden) -> None:
    _check(golden)
