"""What all code that works with arrays shares: the type of an array, and the division that rounds up."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

Array = np.ndarray[Any, Any]
"""An array of any shape and element type."""


@overload
def ceil_div(value: int, by: int) -> int: ...
@overload
def ceil_div(value: Any, by: Any) -> Any: ...
def ceil_div(value: Any, by: Any) -> Any:
    """value / by, rounded up; of arrays, element by element.

    >>> ceil_div(7, 2), ceil_div(8, 2), ceil_div(np.array([1, 9]), 4).tolist()
    (4, 4, [1, 3])
    """
    return -(-value // by)
