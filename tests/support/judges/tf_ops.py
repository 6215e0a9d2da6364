"""One frozen graph of many ops, built and run by TensorFlow, each op with its own output; run by a Python that has it.

    python tf_ops.py FOLDER

writes FOLDER/ops.pb and FOLDER/ops.npz with the inputs and what TensorFlow gives for every output.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf


def outputs(x: Any, m: Any, i: Any) -> dict[str, Any]:
    """Results by name, of an image, a matrix and indices."""
    raw = tf.raw_ops
    rng = np.random.default_rng(5)
    k = rng.normal(size=(3, 3, 4, 6)).astype(np.float32)
    positive = tf.abs(x) + 0.5
    results = {
        "conv_valid": tf.nn.conv2d(x, k, [1, 2, 1, 1], "VALID"),
        "conv_dilated": tf.nn.conv2d(x, k, 1, "SAME", dilations=[1, 2, 2, 1]),
        "conv_explicit": tf.nn.conv2d(x, k, 2, [[0, 0], [2, 1], [0, 3], [0, 0]]),
        "conv_groups": tf.nn.conv2d(x, k[:, :, :2], 1, "SAME"),
        "depthwise": tf.nn.depthwise_conv2d(x, k[..., :2], [1, 2, 2, 1], "SAME"),
        "transposed": tf.nn.conv2d_transpose(x, k.transpose(0, 1, 3, 2), [1, 15, 12, 6], 2, "SAME"),
        "transposed_valid": tf.nn.conv2d_transpose(x, k.transpose(0, 1, 3, 2), [1, 17, 14, 6], 2, "VALID"),
        "max_pool": tf.nn.max_pool2d(x, [3, 2], [2, 1], "SAME"),
        "avg_pool": tf.nn.avg_pool2d(x, 3, 2, "SAME"),
        "lrn": tf.nn.lrn(x, 2, 1.5, 0.3, 0.6),
        "bilinear": raw.ResizeBilinear(images=x, size=[13, 5], half_pixel_centers=True),
        "bilinear_corners": raw.ResizeBilinear(images=x, size=[13, 5], align_corners=True),
        "bilinear_old": raw.ResizeBilinear(images=x, size=[13, 5]),
        "nearest": raw.ResizeNearestNeighbor(images=x, size=[13, 5], half_pixel_centers=True),
        "nearest_corners": raw.ResizeNearestNeighbor(images=x, size=[13, 5], align_corners=True),
        "nearest_old": raw.ResizeNearestNeighbor(images=x, size=[13, 5]),
        "bicubic": raw.ResizeBicubic(images=x, size=[13, 9], half_pixel_centers=True),
        "space_to_depth": tf.nn.space_to_depth(x, 2),
        "depth_to_space": tf.nn.depth_to_space(x, 2),
        "space_to_batch": tf.space_to_batch(x, [2, 3], [[1, 1], [0, 0]]),
        "batch_to_space": tf.batch_to_space(tf.tile(x, [4, 1, 1, 1]), [2, 2], [[1, 0], [0, 2]]),
        "mirror": tf.pad(x, [[0, 0], [2, 1], [0, 3], [0, 0]], "REFLECT"),
        "symmetric": tf.pad(x, [[0, 0], [2, 1], [0, 3], [1, 1]], "SYMMETRIC"),
        "pad_value": tf.pad(x, [[0, 0], [2, 1], [0, 0], [0, 1]], constant_values=3.0),
        "cumsum": tf.cumsum(x, 2, exclusive=True, reverse=True),
        "top_values": tf.math.top_k(m, 3).values,
        "top_indices": tf.math.top_k(m, 3).indices,
        "one_hot": tf.one_hot(i, 6, on_value=2.0, off_value=-1.0, axis=1),
        "gather": tf.gather(x, i, axis=2),
        "gather_nd": tf.gather_nd(m, tf.stack([i, i], 1)),
        "scatter_nd": tf.scatter_nd(tf.expand_dims(i, 1), m[:3], [6, 7]),
        "reverse": tf.reverse(x, [1, 3]),
        "reverse_sequence": tf.reverse_sequence(m, [3, 1, 7, 2, 5], seq_axis=1, batch_axis=0),
        "band": tf.linalg.band_part(m, 1, 2),
        "clip": tf.clip_by_value(x, -0.5, 0.7),
        "select": tf.where(x > 0, x, tf.ones_like(x)),
        "any": tf.cast(tf.reduce_any(x > 1.5, [1, 2]), tf.int32),
        "all": tf.cast(tf.reduce_all(x > -1.5, 3, keepdims=True), tf.int32),
        "argmin": tf.argmin(x, 2, tf.int32),
        "argmax": tf.argmax(x, 3),
        "prod": tf.reduce_prod(positive, [1, 3]),
        "norm": tf.norm(x, axis=[1, 2]),
        "l2_normalize": tf.math.l2_normalize(x, 3),
        "log_softmax": tf.nn.log_softmax(x),
        "leaky": tf.nn.leaky_relu(x, 0.3),
        "selu": tf.nn.selu(x),
        "erf": tf.math.erf(x),
        "pow": tf.pow(positive, 1.7),
        "floor_mod": tf.math.floormod(x, 0.7),
        "floor_div": x // 0.7,
        "int_div": (i - 2) // 2,
        "int_mod": (i - 2) % 3,
        "div_no_nan": tf.math.divide_no_nan(x, tf.nn.relu(x)),
        "expm1": tf.math.expm1(x),
        "rint": tf.math.rint(x * 3),
        "xent": tf.nn.softplus(-x) + tf.math.rsqrt(positive) + tf.math.reciprocal(positive),
        "split": tf.split(x, [1, 4, -1], 1)[1],
        "unstack": tf.unstack(x, axis=3)[2],
        "stack": tf.stack([m, m + 1], -1),
        "tile": tf.tile(x, [1, 2, 1, 3]),
        "broadcast": tf.broadcast_to(m[:1], [4, 7]),
        "strided": x[:, ::-2, tf.newaxis, 1:-1, ...],
        "shrink": x[0, -1, :, 2],
        "transpose": tf.transpose(x, [0, 3, 1, 2]) * 2,
        "squeeze": tf.squeeze(x, 0),
        "einsum": tf.einsum("nhwc,cd->ndhw", x, k[0, 0]),
        "matmul": tf.matmul(m, m, transpose_a=True),
        "batch_matmul": tf.matmul(x, x, adjoint_b=True),
        "moments": tf.nn.moments(x, [1, 2], keepdims=True)[1],
        "batch_norm": tf.nn.batch_normalization(x, k[0, 0, :, 0], 1.5, k[0, 0, :, 1], k[0, 0, :, 2], 0.01),
        "fused_norm": raw.FusedBatchNormV3(
            x=x,
            scale=k[0, 0, :, 0],
            offset=k[0, 0, :, 1],
            mean=k[0, 0, :, 2],
            variance=np.abs(k[0, 0, :, 3]),
            is_training=False,
        ).y,
        "add_n": tf.add_n([x, x, positive]),
        "shape": tf.reshape(x, tf.concat([tf.shape(x)[:1], [-1]], 0)),
        "case": tf.cond(tf.constant(True), lambda: x + 1, lambda: x - 1),
        "loop": tf.while_loop(lambda n, v: n < 4, lambda n, v: (n + 1, v * 1.5), [tf.constant(0), x])[1],
    }
    return {name: tf.identity(value, name=f"out/{name}") for name, value in results.items()}


def main(folder: Path) -> None:
    """Build, run, save."""
    v1 = tf.compat.v1
    rng = np.random.default_rng(2)
    arrays = {
        "x": rng.normal(size=(1, 8, 6, 4)).astype(np.float32),
        "m": rng.normal(size=(5, 7)).astype(np.float32),
        "i": np.array([0, 3, 1], np.int32),
    }
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        inputs = [v1.placeholder(a.dtype, a.shape, name) for name, a in arrays.items()]
        tensors = outputs(*inputs)
        values = session.run(tensors, dict(zip(inputs, arrays.values(), strict=True)))
        (folder / "ops.pb").write_bytes(graph.as_graph_def().SerializeToString())
    np.savez(folder / "ops.npz", **arrays, **{f"out/{name}": value for name, value in values.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
