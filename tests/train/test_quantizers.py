"""Fake quantization: its gradients are those of LSQ, and scales that begin at a wrong place learn where the error is least."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from npuc.train.qat.quantizers import LearnedScale, best_scale, fake_quantize  # noqa: E402


def _gradients(x: Any, scale: Any, gradient: Any, zero: int, lo: int, hi: int) -> tuple[Any, Any, Any]:
    """The result and both gradients, element by element as the definition has them, in float64."""
    x, scale, gradient = x.double(), scale.double(), gradient.double()
    rounded = torch.floor(x / scale + 0.5)
    held = rounded.clamp(lo - zero, hi - zero)
    inside = held == rounded
    of_scale = gradient * torch.where(inside, held - x / scale, held)
    return held * scale, gradient * inside, of_scale.sum_to_size(scale.shape)


@pytest.mark.parametrize(
    ("shape", "scales", "zero", "lo", "hi", "size"),
    [
        ((4, 8, 6, 6), (), 0, 0, 15, 0.2),
        ((4, 8, 6, 6), (), -20, -128, 127, 0.02),
        ((4, 8, 6, 6), (), 0, -32768, 32767, 1e-4),
        ((8, 4, 3, 3), (8, 1, 1, 1), 0, -8, 7, 0.1),
        ((8, 4, 3, 3), (1, 1, 1, 1), 0, -2, 1, 0.5),
    ],
)
def test_gradients_are_those_of_the_definition(
    shape: tuple[int, ...], scales: tuple[int, ...], zero: int, lo: int, hi: int, size: float
) -> None:
    torch.manual_seed(0)
    x, gradient = torch.randn(shape), torch.randn(shape)
    scale = size * (1 + 0.2 * torch.rand(scales))
    result, of_x, of_scale = _gradients(x, scale, gradient, zero, lo, hi)
    x.requires_grad_()
    scale.requires_grad_()
    found = fake_quantize(x, scale, zero, lo, hi)
    found.backward(gradient)
    torch.testing.assert_close(found.double(), result, rtol=1e-6, atol=1e-7)
    assert torch.equal(x.grad.double(), of_x), "elements outside of the range pass nothing"
    assert 0 < int((of_x == 0).sum()) < of_x.numel() or hi > 1000
    torch.testing.assert_close(
        scale.grad.double(), of_scale, rtol=1e-3, atol=1e-3 * float(of_scale.abs().max())
    )


def test_an_element_inside_moves_the_scale_by_what_it_was_rounded() -> None:
    scale = torch.tensor(1.0, requires_grad=True)
    fake_quantize(torch.tensor([0.8]), scale, 0, -8, 7).sum().backward()
    assert float(scale.grad) == pytest.approx(0.2)
    scale.grad = None
    fake_quantize(torch.tensor([9.3]), scale, 0, -8, 7).sum().backward()
    assert float(scale.grad) == 7, "outside, the end of the range grows with the scale"


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("wrong", [8.0, 1 / 8])
def test_a_scale_that_begins_wrong_learns_where_the_error_is_least(power: bool, wrong: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(4096)
    best = best_scale(x, 0.5, 0, -8, 7, power=power)

    def error(step: Any) -> Any:
        return (fake_quantize(x, step, 0, -8, 7) - x).square().mean()

    scale = LearnedScale(wrong * best, x.numel(), 7, power=power)
    begin = float(error(scale()).detach())
    optimizer = torch.optim.Adam(scale.parameters(), lr=0.05, betas=(0.9, 0.9))
    for _ in range(200):
        optimizer.zero_grad()
        error(scale()).backward()
        optimizer.step()
    least = float(error(torch.tensor(best)))
    end = float(error(scale()).detach())
    assert begin > 3 * least
    assert end < 1.15 * least
