"""Fake quantization as one autograd function, against the same formula as a chain of torch's operations."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra npuc[torch]")

from npuc.ir.dtypes import QuantType  # noqa: E402
from npuc.quant.reconstruction.fake import DropMasks, fake_quantized  # noqa: E402


def chain(x: Any, kind: QuantType, step: Any, keep: Any) -> Any:
    """Straight through: the rounding is added as a constant, so that autograd does not see it."""
    least, most = kind.dtype.limits
    ratio = x / step
    steps = ratio + (torch.floor(ratio + 0.5) - ratio).detach() + kind.zero_point
    y = (steps.clamp(least, most) - kind.zero_point) * step
    return y if keep is None else torch.where(keep > 0, x, y)


@pytest.mark.parametrize(
    "kind", [QuantType.of("i8", 0.03, -5), QuantType.of("ui8", 0.25, 0), QuantType.of("i16", 2.0**-9, 0)]
)
@pytest.mark.parametrize("dropped", [False, True])
def test_values_and_gradients_are_those_of_the_formula(kind: QuantType, dropped: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    x = 3 * torch.randn(4, 3, 40, 40, generator=generator)
    keep = (torch.rand(x.shape, generator=generator) < 0.5).float() if dropped else None
    weight = torch.randn(x.shape, generator=generator)
    results = []
    for function in (chain, fake_quantized):
        own, change = x.clone().requires_grad_(), torch.zeros((), requires_grad=True)
        y = function(own, kind, change.exp() * kind.scale, keep)
        (y * weight).sum().backward()
        results.append((y.detach(), own.grad, change.grad))
    (y, by_x, by_step), (got, got_by_x, got_by_step) = results
    torch.testing.assert_close(got, y, rtol=0, atol=1e-6)
    torch.testing.assert_close(got_by_x, by_x, rtol=1e-5, atol=0)
    clipped = int((by_x == 0).sum())
    assert int((got_by_x == 0).sum()) == clipped and (clipped > 0) == (kind.dtype.itemsize == 1)
    torch.testing.assert_close(got_by_step, by_step, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        assert torch.equal(
            fake_quantized(x, kind, None, keep), fake_quantized(x, kind, torch.tensor(kind.scale), keep)
        )


def test_masks_keep_their_share_and_differ() -> None:
    masks, again, other = (DropMasks(0.3, seed, "cpu") for seed in (1, 1, 2))
    x = torch.zeros(2, 50, 1000)
    first, second = masks(x), masks(x)
    assert first.shape == x.shape and set(first.unique().tolist()) == {0.0, 1.0}
    assert abs(float(first.mean()) - 0.3) < 0.01 and abs(float(second.mean()) - 0.3) < 0.01
    # Two independent masks agree in 0.3 * 0.3 + 0.7 * 0.7 of their elements.
    assert abs(float((first == second).float().mean()) - 0.58) < 0.02
    assert torch.equal(first, again(x)) and not torch.equal(first, other(x))


def test_a_sample_has_the_same_mask_in_every_part_of_a_batch() -> None:
    whole, parted = DropMasks(0.5, 3, "cpu"), DropMasks(0.5, 3, "cpu")
    for masks in (whole, parted):
        masks.begin_batch(5)
    one = [whole(torch.zeros(5, *shape)) for shape in ((3, 4), (70_000,), (2,))]
    parts = []
    for first, count in ((0, 2), (2, 2), (4, 1)):
        parted.begin_part(first, count)
        parts.append([parted(torch.zeros(count, *shape)) for shape in ((3, 4), (70_000,), (2,))])
    for index, mask in enumerate(one):
        assert torch.equal(mask, torch.cat([part[index] for part in parts]))
