"""Scores: probabilities of logits, and the best of them."""

from __future__ import annotations

import numpy as np

from npuc.arithmetic import functions
from npuc.arrays import Array


def softmax(x: Array, axis: int = -1) -> Array:
    """Logits to probabilities that sum to 1 along an axis.

    >>> softmax(np.float32([0, 0])).tolist()
    [0.5, 0.5]
    """
    x = np.asarray(x)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    probabilities: Array = e / e.sum(axis=axis, keepdims=True)
    return probabilities


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow, in the type of x.

    >>> sigmoid(np.float32([0, -1000])).tolist()
    [0.5, 0.0]
    """
    return np.asarray(functions.sigmoid(np.asarray(x)))


def top_k(scores: Array, k: int = 5) -> tuple[Array, Array]:
    """The indices and values of the `k` largest of the last axis, the largest first; of equal ones the lower index.

    >>> [one.tolist() for one in top_k(np.float32([0.1, 0.7, 0.2]), 2)]
    [[1, 2], [0.699999988079071, 0.20000000298023224]]
    """
    scores = np.asarray(scores)
    # A stable sort of the reversed axis, read backwards: the lower index first among equals.
    back = np.argsort(scores[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    indices = scores.shape[-1] - 1 - back[..., :k]
    return indices, np.take_along_axis(scores, indices, axis=-1)
