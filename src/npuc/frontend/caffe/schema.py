"""Field numbers of Caffe's protobuf messages, as far as a network that runs needs them.

One line a message: `number name kind`, where a kind is i (integer), b (true or false), f (float), s (text), e:NAME (an
enumeration), p (floats or doubles of a blob, left in the file), x (bytes) or the name of a message; `*` for repeated ones
that may be packed. Fields that are not here (fillers, learning rates, what only training uses) are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

ENUMS: dict[str, dict[int, str]] = {
    name: {int(number): word for number, _, word in (entry.partition("=") for entry in entries.split())}
    for name, entries in {
        "Phase": "0=TRAIN 1=TEST",
        "Pool": "0=MAX 1=AVE 2=STOCHASTIC",
        "Round": "0=CEIL 1=FLOOR",
        "Region": "0=ACROSS_CHANNELS 1=WITHIN_CHANNEL",
        "Eltwise": "0=PROD 1=SUM 2=MAX",
        "Reduction": "1=SUM 2=ASUM 3=SUMSQ 4=MEAN",
        "Code": "1=CORNER 2=CENTER_SIZE 3=CORNER_SIZE",
        "V1": "0=NONE 1=ACCURACY 2=BNLL 3=CONCAT 4=CONVOLUTION 5=DATA 6=DROPOUT 7=EUCLIDEAN_LOSS 8=FLATTEN 9=HDF5_DATA "
        "10=HDF5_OUTPUT 11=IM2COL 12=IMAGE_DATA 13=INFOGAIN_LOSS 14=INNER_PRODUCT 15=LRN 16=MULTINOMIAL_LOGISTIC_LOSS "
        "17=POOLING 18=RELU 19=SIGMOID 20=SOFTMAX 21=SOFTMAX_LOSS 22=SPLIT 23=TANH 24=WINDOW_DATA 25=ELTWISE 26=POWER "
        "27=SIGMOID_CROSS_ENTROPY_LOSS 28=HINGE_LOSS 29=MEMORY_DATA 30=ARGMAX 31=THRESHOLD 32=DUMMY_DATA 33=SLICE "
        "34=MVN 35=ABSVAL 36=SILENCE 37=CONTRASTIVE_LOSS 38=EXP 39=DECONVOLUTION",
    }.items()
}
"""Names of the values of each enumeration."""

_LAYER_PARAMETERS = """
103 argmax_param Argmax, 104 concat_param Concat, 106 convolution_param Convolution, 110 eltwise_param Eltwise,
111 exp_param Exp, 117 inner_product_param InnerProduct, 118 lrn_param Lrn, 120 mvn_param Mvn, 121 pooling_param Pooling,
122 power_param Power, 123 relu_param Relu, 125 softmax_param Softmax, 126 slice_param Slice, 128 threshold_param Threshold,
130 python_param Python, 131 prelu_param Prelu, 133 reshape_param Reshape, 134 log_param Exp, 135 flatten_param Flatten,
136 reduction_param Reduction, 137 embed_param Embed, 138 tile_param Tile, 139 batch_norm_param BatchNorm,
140 elu_param Elu, 141 bias_param Scale, 142 scale_param Scale, 143 input_param Input, 144 crop_param Crop,
146 recurrent_param Recurrent, 147 swish_param Swish, 148 clip_param Clip, 202 permute_param Permute,
203 prior_box_param PriorBox, 204 detection_output_param DetectionOutput, 206 norm_param Normalize
"""

_TEXT = f"""
Net: 1 name s, 2 layers V1Layer, 3 input s, 4 input_dim i*, 6 state State, 8 input_shape Shape, 100 layer Layer
State: 1 phase e:Phase, 2 level i, 3 stage s
Rule: 1 phase e:Phase, 2 min_level i, 3 max_level i, 4 stage s, 5 not_stage s
Shape: 1 dim i*
Blob: 1 num i, 2 channels i, 3 height i, 4 width i, 5 data p, 7 shape Shape, 8 double_data p, 10 raw_data_type i, 12 raw_data x
Layer: 1 name s, 2 type s, 3 bottom s, 4 top s, 7 blobs Blob, 8 include Rule, 9 exclude Rule, {_LAYER_PARAMETERS.strip()}
V1Layer: 1 layer V0Layer, 2 bottom s, 3 top s, 4 name s, 5 type e:V1, 6 blobs Blob, 9 concat_param Concat,
 10 convolution_param Convolution, 17 inner_product_param InnerProduct, 18 lrn_param Lrn, 19 pooling_param Pooling,
 21 power_param Power, 23 argmax_param Argmax, 24 eltwise_param Eltwise, 25 threshold_param Threshold, 30 relu_param Relu,
 31 slice_param Slice, 32 include Rule, 33 exclude Rule, 34 mvn_param Mvn, 39 softmax_param Softmax, 41 exp_param Exp
V0Layer: 1 name s, 2 type s, 3 num_output i, 4 biasterm b, 7 pad i, 8 kernelsize i, 9 group i, 10 stride i, 11 pool e:Pool,
 12 dropout_ratio f, 13 local_size i, 14 alpha f, 15 beta f, 17 scale f, 22 k f, 50 blobs Blob, 64 concat_dim i
Argmax: 1 out_max_val b, 2 top_k i, 3 axis i
Concat: 1 concat_dim i, 2 axis i
Convolution: 1 num_output i, 2 bias_term b, 3 pad i*, 4 kernel_size i*, 5 group i, 6 stride i*, 9 pad_h i, 10 pad_w i,
 11 kernel_h i, 12 kernel_w i, 13 stride_h i, 14 stride_w i, 16 axis i, 18 dilation i*
Eltwise: 1 operation e:Eltwise, 2 coeff f*
Exp: 1 base f, 2 scale f, 3 shift f
InnerProduct: 1 num_output i, 2 bias_term b, 5 axis i, 6 transpose b
Lrn: 1 local_size i, 2 alpha f, 3 beta f, 4 norm_region e:Region, 5 k f
Mvn: 1 normalize_variance b, 2 across_channels b, 3 eps f
Pooling: 1 pool e:Pool, 2 kernel_size i, 3 stride i, 4 pad i, 5 kernel_h i, 6 kernel_w i, 7 stride_h i, 8 stride_w i,
 9 pad_h i, 10 pad_w i, 12 global_pooling b, 13 round_mode e:Round
Power: 1 power f, 2 scale f, 3 shift f
Relu: 1 negative_slope f
Softmax: 2 axis i
Slice: 1 slice_dim i, 2 slice_point i*, 3 axis i
Threshold: 1 threshold f
Python: 1 module s, 2 layer s, 3 param_str s
Prelu: 2 channel_shared b
Reshape: 1 shape Shape, 2 axis i, 3 num_axes i
Flatten: 1 axis i, 2 end_axis i
Reduction: 1 operation e:Reduction, 2 axis i, 3 coeff f
Embed: 1 num_output i, 2 input_dim i, 3 bias_term b
Tile: 1 axis i, 2 tiles i
BatchNorm: 1 use_global_stats b, 3 eps f
Elu: 1 alpha f
Scale: 1 axis i, 2 num_axes i, 4 bias_term b
Input: 1 shape Shape
Crop: 1 axis i, 2 offset i*
Recurrent: 1 num_output i, 5 expose_hidden b
Swish: 1 beta f
Clip: 1 min f, 2 max f
Permute: 1 order i*
PriorBox: 1 min_size f*, 2 max_size f*, 3 aspect_ratio f*, 4 flip b, 5 clip b, 6 variance f*, 7 img_size i, 8 img_h i,
 9 img_w i, 10 step f, 11 step_h f, 12 step_w f, 13 offset f
Nms: 1 nms_threshold f, 2 top_k i, 3 eta f
DetectionOutput: 1 num_classes i, 2 share_location b, 3 background_label_id i, 4 nms_param Nms, 6 code_type e:Code,
 7 keep_top_k i, 8 variance_encoded_in_target b, 9 confidence_threshold f
Normalize: 1 across_spatial b, 3 channel_shared b, 4 eps f
"""


@dataclass(frozen=True)
class Field:
    """One field: its name, the letter or message of its kind."""

    name: str
    kind: str


def _messages() -> dict[str, dict[int, Field]]:
    messages: dict[str, dict[int, Field]] = {}
    for line in _TEXT.strip().replace("\n ", " ").replace(",\n", ", ").splitlines():
        message, separator, rest = line.partition(":")
        assert separator, line
        entries = (entry.split() for entry in rest.split(",") if entry.strip())
        messages[message] = {int(number): Field(name, kind.rstrip("*")) for number, name, kind in entries}
    return messages


MESSAGES = _messages()
"""Fields of each message by number."""
