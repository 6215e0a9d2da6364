"""Small models that between them use most of the importer: the seeds of the fuzz test.

They are written in ONNX's own text syntax, so that each says at a glance what it has: convolutions, shape arithmetic,
control flow with and without a known course, quantization, functions, recurrent layers, external data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

_HEAD = '<ir_version: 8, opset_import: ["" : {opset}{more}]>\n'

_CONVOLUTIONS = """
agraph (float[1,3,12,12] x) => (float[1,10] y)
<float[8,3,3,3] w0, float[8] b0, float[8] scale, float[8] bias, float[8] mean, float[8] var, float[8,1,3,3] w1,
 float[8,8,2,2] w2, float[10,8] w3, float[10] b3, float[8,1,1] slope>
{
  c0 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
  n0 = BatchNormalization <epsilon = 0.001> (c0, scale, bias, mean, var)
  r0 = Relu (n0)
  c1 = Conv <auto_pad = "SAME_UPPER", group = 8> (r0, w1)
  p1 = PRelu (c1, slope)
  a1 = Add (p1, r0)
  m1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a1)
  t1 = ConvTranspose <strides = [2, 2]> (m1, w2)
  v1 = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (t1)
  l1 = LRN <size = 3> (v1)
  g = GlobalAveragePool (l1)
  f = Flatten <axis = 1> (g)
  d = Gemm <transB = 1, alpha = 0.5> (f, w3, b3)
  y = Softmax <axis = -1> (d)
}
"""

_SHAPES = """
agraph (float[2,4,6] x, int64[3] ids) => (float[2,2,12] y, float[3,6] z, int64[2,3,1] k, float[4,4] e)
<int64[1] zero = {0}, int64[1] one = {1}, int64[2] twelve = {2, 12}, int64[1] m1 = {-1}, int64[2] ax = {0, 2},
 int64[2] big = {1000, 1000}, int64[3] reps = {1, 2, 1}, int64[6] pads = {0, 1, 0, 0, 0, 1}, int64 three = {3},
 int64 i0 = {0}, int64 i1 = {1}, int64[2] four = {4, 4}, float[1] half = {0.5}, float[7,6] table>
{
  s = Shape (x)
  n = Gather <axis = 0> (s, zero)
  shape = Concat <axis = 0> (n, twelve)
  y = Reshape (x, shape)
  sliced = Slice (x, zero, big, ax, one)
  tiled = Tile (sliced, reps)
  padded = Pad <mode = "constant"> (tiled, pads)
  reduced = ReduceMean <keepdims = 1, axes = [1]> (padded)
  z0 = Gather <axis = 0> (table, ids)
  count = Range (i0, three, i1)
  stretch = Unsqueeze (count, m1)
  stretched = Cast <to = 1> (stretch)
  z1 = Mul (z0, stretched)
  eyes = ConstantOfShape <value = float[1] {2.0}> (four)
  eye = EyeLike <k = 1> (eyes)
  e = CumSum (eye, i0)
  z = Expand (z1, one)
  best, kk = TopK <axis = 2> (x, one)
  ktt = Slice (kk, zero, three1, one)
  k = Identity (ktt)
  three1 = Cast <to = 7> (three2)
  three2 = Constant <value = float[1] {3.0}> ()
}
"""

_BRANCHES = """
agraph (float[4] x, bool cond) => (float[4] y, float[4] z, float[4] w)
<bool yes = {1}, float[4] c = {1.0, 2.0, 3.0, 4.0}>
{
  y = If (yes) <
    then_branch = t1 () => (float[4] ty) { ty = Add (x, c) },
    else_branch = e1 () => (float[4] ey) { ey = Sub (x, c) }>
  z = If (cond) <
    then_branch = t2 () => (float[4] tz) { q = Mul (x, c)  tz = Relu (q) },
    else_branch = e2 () => (float[4] ez) { ez = If (yes) <
        then_branch = t3 () => (float[4] tzz) { tzz = Neg (y) },
        else_branch = e3 () => (float[4] ezz) { ezz = Abs (y) }> }>
  w = Add (y, z)
}
"""

_LOOPS = """
agraph (float[4] x, int64 n) => (float[4] y, float[3,4] s, float[4] d, float[2] t, float[5,2] u)
<int64 trips = {3}, bool go = {1}, float[2] start = {0.0, 1.0}, float[5,2] rows>
{
  y, s = Loop (trips, go, x) <body = b1 (int64 i, bool c, float[4] v) => (bool c1, float[4] v1, float[4] o) {
    c1 = Identity (c)
    f = Cast <to = 1> (i)
    v1 = Add (v, f)
    o = Sigmoid (v1)
  }>
  d = Loop (n, go, x) <body = b2 (int64 j, bool k, float[4] p) => (bool k1, float[4] p1) {
    k1 = Identity (k)
    p1 = Mul (p, x)
  }>
  t, u = Scan (start, rows) <num_scan_inputs = 1, body = b3 (float[2] st, float[2] row) => (float[2] so, float[2] ro) {
    so = Add (st, row)
    ro = Identity (so)
  }>
}
"""

_QUANTIZED = """
agraph (float[1,2,8,8] x) => (float[1,4,8,8] y, uint8[1,2] m)
<float s = {0.1}, uint8 zp = {128}, float[4] ws, int8[4] wz = {0, 0, 0, 0}, int8[4,2,3,3] w, float bs = {0.01},
 int32[4] b, int32 bz = {0}, uint8[3,2] v, float[1,3] q>
{
  xq = QuantizeLinear (x, s, zp)
  xd = DequantizeLinear (xq, s, zp)
  wd = DequantizeLinear <axis = 0> (w, ws, wz)
  bd = DequantizeLinear (b, bs, bz)
  c = Conv <pads = [1, 1, 1, 1]> (xd, wd, bd)
  cq = QuantizeLinear (c, s, zp)
  y = DequantizeLinear (cq, s, zp)
  qq, qs, qz = DynamicQuantizeLinear (q)
  m = QLinearMatMul (qq, s, zp, v, s, zp, s, zp)
}
"""

_FUNCTIONS = """
agraph (float[2,8] x) => (float[2,8] y, float[2,4] z)
<float[8] g, float[8] b, float[8,4] w>
{
  h = custom.twice (x)
  n = LayerNormalization <axis = -1> (h, g, b)
  y = custom.scaled <factor = 0.5> (n)
  z = MatMul (y, w)
}

<domain: "custom", opset_import: ["" : 17, "custom" : 1]>
twice (a) => (r) { t = Add (a, a)  r = custom.soft (t) }

<domain: "custom", opset_import: ["" : 17]>
soft (a) => (r) { s = Sigmoid (a)  r = Mul (a, s) }

<domain: "custom", opset_import: ["" : 17]>
scaled <factor> (a) => (r) { f = Constant <value_float: float = @factor> ()  r = Mul (a, f) }
"""

_RECURRENT = """
agraph (float[5,2,3] x, float[1,2,4] h, float[1,2,4] c) =>
  (float[5,1,2,4] y, float[1,2,4] yc, float[2,2,4] gh, float[5,1,2,4] r)
<float[1,16,3] w, float[1,16,4] rw, float[1,32] b, float[2,12,3] gw, float[2,12,4] gr, float[1,4,3] vw, float[1,4,4] vr>
{
  y, yh, yc = LSTM <hidden_size = 4> (x, w, rw, b, , h, c)
  gy, gh = GRU <hidden_size = 4, direction = "bidirectional", linear_before_reset = 1> (x, gw, gr)
  r, rh = RNN <hidden_size = 4, activations = ["Relu"]> (x, vw, vr, , , h)
}
"""

_ATTENTION = """
agraph (float[1,6,8] x, bool[1,6] mask) => (float[1,6,8] y, float[1,6,8] z)
<float[8,24] wqkv, float[24] bqkv, float[8,8] wo, float[8] g, int64[3] split = {8, 8, 8}, int64[4] heads = {1, 6, 2, 4},
 int64[3] merged = {1, 6, 8}, float scale = {0.5}, float low = {-10000.0}, float zero = {0.0}, int64[2] axes = {1, 2}>
{
  p = MatMul (x, wqkv)
  pb = Add (p, bqkv)
  q, k, v = Split <axis = 2> (pb, split)
  q4 = Reshape (q, heads)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  qt = Transpose <perm = [0, 2, 1, 3]> (q4)
  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
  vt = Transpose <perm = [0, 2, 1, 3]> (v4)
  l = MatMul (qt, kt)
  ls = Mul (l, scale)
  penalty = Where (mask, zero, low)
  wide = Unsqueeze (penalty, axes)
  lm = Add (ls, wide)
  a = Softmax <axis = -1> (lm)
  o = MatMul (a, vt)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, merged)
  y0 = MatMul (om, wo)
  y = Gelu <approximate = "tanh"> (y0)
  e = Einsum <equation = "bij,bik->bjk"> (x, y)
  z0 = MatMul (x, e)
  z = Clip (z0, low, scale)
}
"""

_IMAGES = """
agraph (float[1,4,6,6] x, float[1,3,4] boxes, float[1,1,3] scores) =>
 (float[1,4,12,12] y, float[1,1,12,12] z, int64[n,3] picked,
  float[1,4,3,3] g, float[2,3,4,4] r, float[5,3] hot)
<float[4] scales = {1.0, 1.0, 2.0, 2.0}, int64 most = {5}, float iou = {0.5}, float[1,3,3,2] grid, float[2,4] rois,
 int64[2] batch = {0, 0}, int64[5] ids = {0, 2, 1, 1, 0}, int64 depth = {3}, float[2] onoff = {0.0, 1.0},
 float[1,3,6,6] pic>
{
  y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , scales)
  z = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
  picked = NonMaxSuppression (boxes, scores, most, iou)
  g = GridSample <mode = "bilinear"> (x, grid)
  r = RoiAlign <output_height = 4, output_width = 4, sampling_ratio = 2> (pic, rois, batch)
  hot = OneHot <axis = -1> (ids, depth, onoff)
}
"""

_FOLDED = """
agraph (float[1] x) => (float[1] y)
<float[1,1,6,6] a, float[1,1,3,3] w, int64[1] one = {1}, int64 i1 = {1}, int64[4] size = {1, 1, 3, 3}, float[6,6] m,
 float[1] zero = {0.0}, int64[1] w8 = {8}, int64[2] starts = {1, 1}, int64[2] ends = {3, 3}>
{
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (a, w)
  p = MaxPool <kernel_shape = [2, 2], strides = [1, 1]> (c)
  v = AveragePool <kernel_shape = [2, 2]> (a)
  r = Resize (a, , , size)
  t = ConvTranspose <strides = [2, 2]> (c, w)
  s = ReduceSum <keepdims = 0> (p, one)
  q = Softmax <axis = 0> (m)
  k1, k2 = TopK <axis = 0> (m, one)
  nz = NonZero (m)
  cs = CumSum (m, i1)
  tr = Trilu <upper = 1> (m)
  d = Det (m)
  win = HannWindow (i1)
  sl = Slice (m, starts, ends)
  ev = Einsum <equation = "ij,jk->ik"> (m, q)
  g = GatherElements <axis = 1> (m, k2)
  s2d = SpaceToDepth <blocksize = 2> (a)
  lp = LpPool <kernel_shape = [2, 2]> (a)
  mvn = MeanVarianceNormalization (a)
  hm = Hardmax (m)
  parts0, parts1 = Split <axis = 0> (m)
  total = Sum (zero, d)
  rs = ReduceSum (q)
  rm = Reshape (rs, one)
  sq = Squeeze (v)
  mx = ReduceMax <keepdims = 0> (sq)
  o1 = Add (total, rm)
  o2 = Add (o1, mx)
  rt = ReduceL2 <keepdims = 0> (t)
  o3 = Add (o2, rt)
  y = Add (x, o3)
}
"""

_TEXTS = {
    "convolutions": (_CONVOLUTIONS, 13, ""),
    "shapes": (_SHAPES, 13, ""),
    "branches": (_BRANCHES, 16, ""),
    "loops": (_LOOPS, 16, ""),
    "quantized": (_QUANTIZED, 13, ""),
    "functions": (_FUNCTIONS, 17, ', "custom" : 1'),
    "recurrent": (_RECURRENT, 14, ""),
    "attention": (_ATTENTION, 20, ""),
    "images": (_IMAGES, 18, ""),
    "folded": (_FOLDED, 17, ""),
}
NAMES = (*_TEXTS, "external")


def _filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The constants that the text declares without data get small random values."""
    generator = np.random.default_rng(0)
    for info in model.graph.value_info:
        kind = info.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        array = generator.random(shape) if dtype.kind == "f" else generator.integers(0, 4, shape)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(dtype), info.name))
    del model.graph.value_info[:]
    return model


def model(name: str) -> onnx.ModelProto:
    """One of the models in `NAMES`, except "external"."""
    text, opset, more = _TEXTS[name]
    return _filled(parser.parse_model(_HEAD.format(opset=opset, more=more) + text))


def external(folder: Path) -> Path:
    """The model of convolutions with its weights beside it; the returned file refers to `weights.bin`."""
    path = folder / "external.onnx"
    proto = model("convolutions")
    onnx.save_model(
        proto,
        str(path),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=False,
    )
    return path
