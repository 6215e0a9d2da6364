"""`x[entries]` as Python and TensorFlow write it, worked out for a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.errors import InvalidModelError


def index_spans(
    label: str, shape: Sequence[int], entries: Sequence[Any]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Where the slice of every axis begins, its step and its count, and the shape of the result.

    Entries are slices, integers (whose axis goes), None (a new axis) and an ellipsis.
    """
    entries = list(entries)
    consumed = sum(1 for entry in entries if entry is not None and entry is not Ellipsis)
    if sum(entry is Ellipsis for entry in entries) > 1 or consumed > len(shape):
        raise InvalidModelError(f"{label}: {consumed} slices of rank {len(shape)}")
    at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    entries[at : at + 1] = [slice(None)] * (len(shape) - consumed)
    spans: list[tuple[int, int, int]] = []
    result: list[int] = []
    axes = iter(shape)
    for entry in entries:
        if entry is None:
            result.append(1)
            continue
        size = next(axes)
        if isinstance(entry, int):
            place = entry + size if entry < 0 else entry
            if not 0 <= place < size:
                raise InvalidModelError(f"{label}: entry {entry} of an axis of {size}")
            spans.append((place, 1, 1))
            continue
        span = range(*entry.indices(size))
        spans.append((span.start if len(span) else 0, span.step, len(span)))
        result.append(len(span))
    begins, steps, counts = ([span[i] for span in spans] for i in range(3))
    return begins, steps, counts, result
