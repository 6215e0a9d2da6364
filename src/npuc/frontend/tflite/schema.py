"""TensorFlow Lite's schema as data: the fields of each table, and the numbers of its enumerations.

Made by `make docs` from the `tflite` package. Do not edit. A field has its slot in the vtable, its form, and what it is where it
is absent. A form is a letter of `struct` for a number, `text`, the name of a table, or `union`; a vector has `[` before it.
"""

from __future__ import annotations

TABLES: dict[str, dict[str, tuple[int, str, bool | int | float]]] = {
    "ATan2Options": {},
    "AbsOptions": {},
    "AddNOptions": {},
    "AddOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "PotScaleInt16": (6, "?", True),
    },
    "ArgMaxOptions": {
        "OutputType": (4, "b", 0),
    },
    "ArgMinOptions": {
        "OutputType": (4, "b", 0),
    },
    "AssignVariableOptions": {},
    "BatchMatMulOptions": {
        "AdjX": (4, "?", False),
        "AdjY": (6, "?", False),
        "AsymmetricQuantizeInputs": (8, "?", False),
    },
    "BatchToSpaceNDOptions": {},
    "BidirectionalSequenceLSTMOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "CellClip": (6, "f", 0.0),
        "ProjClip": (8, "f", 0.0),
        "MergeOutputs": (10, "?", False),
        "TimeMajor": (12, "?", True),
        "AsymmetricQuantizeInputs": (14, "?", False),
    },
    "BidirectionalSequenceRNNOptions": {
        "TimeMajor": (4, "?", False),
        "FusedActivationFunction": (6, "b", 0),
        "MergeOutputs": (8, "?", False),
        "AsymmetricQuantizeInputs": (10, "?", False),
    },
    "BitcastOptions": {},
    "BitwiseXorOptions": {},
    "BroadcastToOptions": {},
    "BucketizeOptions": {
        "Boundaries": (4, "[f", 0),
    },
    "Buffer": {
        "Data": (4, "[B", 0),
        "Offset": (6, "Q", 0),
        "Size": (8, "Q", 0),
    },
    "CallOnceOptions": {
        "InitSubgraphIndex": (4, "i", 0),
    },
    "CallOptions": {
        "Subgraph": (4, "I", 0),
    },
    "CastOptions": {
        "InDataType": (4, "b", 0),
        "OutDataType": (6, "b", 0),
    },
    "ConcatEmbeddingsOptions": {
        "NumChannels": (4, "i", 0),
        "NumColumnsPerChannel": (6, "[i", 0),
        "EmbeddingDimPerChannel": (8, "[i", 0),
    },
    "ConcatenationOptions": {
        "Axis": (4, "i", 0),
        "FusedActivationFunction": (6, "b", 0),
    },
    "Conv2DOptions": {
        "Padding": (4, "b", 0),
        "StrideW": (6, "i", 0),
        "StrideH": (8, "i", 0),
        "FusedActivationFunction": (10, "b", 0),
        "DilationWFactor": (12, "i", 1),
        "DilationHFactor": (14, "i", 1),
        "QuantizedBiasType": (16, "b", 0),
    },
    "Conv3DOptions": {
        "Padding": (4, "b", 0),
        "StrideD": (6, "i", 0),
        "StrideW": (8, "i", 0),
        "StrideH": (10, "i", 0),
        "FusedActivationFunction": (12, "b", 0),
        "DilationDFactor": (14, "i", 1),
        "DilationWFactor": (16, "i", 1),
        "DilationHFactor": (18, "i", 1),
    },
    "CosOptions": {},
    "CumsumOptions": {
        "Exclusive": (4, "?", False),
        "Reverse": (6, "?", False),
    },
    "CustomQuantization": {
        "Custom": (4, "[B", 0),
    },
    "DensifyOptions": {},
    "DepthToSpaceOptions": {
        "BlockSize": (4, "i", 0),
    },
    "DepthwiseConv2DOptions": {
        "Padding": (4, "b", 0),
        "StrideW": (6, "i", 0),
        "StrideH": (8, "i", 0),
        "DepthMultiplier": (10, "i", 0),
        "FusedActivationFunction": (12, "b", 0),
        "DilationWFactor": (14, "i", 1),
        "DilationHFactor": (16, "i", 1),
    },
    "DequantizeOptions": {},
    "DilateOptions": {},
    "DimensionMetadata": {
        "Format": (4, "b", 0),
        "DenseSize": (6, "i", 0),
        "ArraySegmentsType": (8, "B", 0),
        "ArraySegments": (10, "union", 0),
        "ArrayIndicesType": (12, "B", 0),
        "ArrayIndices": (14, "union", 0),
    },
    "DivOptions": {
        "FusedActivationFunction": (4, "b", 0),
    },
    "DynamicUpdateSliceOptions": {},
    "EmbeddingLookupSparseOptions": {
        "Combiner": (4, "b", 0),
    },
    "EqualOptions": {},
    "ExpOptions": {},
    "ExpandDimsOptions": {},
    "FakeQuantOptions": {
        "Min": (4, "f", 0.0),
        "Max": (6, "f", 0.0),
        "NumBits": (8, "i", 0),
        "NarrowRange": (10, "?", False),
    },
    "FillOptions": {},
    "FloorDivOptions": {},
    "FloorModOptions": {},
    "FullyConnectedOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "WeightsFormat": (6, "b", 0),
        "KeepNumDims": (8, "?", False),
        "AsymmetricQuantizeInputs": (10, "?", False),
        "QuantizedBiasType": (12, "b", 0),
    },
    "GatherNdOptions": {},
    "GatherOptions": {
        "Axis": (4, "i", 0),
        "BatchDims": (6, "i", 0),
    },
    "GeluOptions": {
        "Approximate": (4, "?", False),
    },
    "GreaterEqualOptions": {},
    "GreaterOptions": {},
    "HardSwishOptions": {},
    "HashtableFindOptions": {},
    "HashtableImportOptions": {},
    "HashtableOptions": {
        "TableId": (4, "i", 0),
        "KeyDtype": (6, "b", 0),
        "ValueDtype": (8, "b", 0),
    },
    "HashtableSizeOptions": {},
    "IfOptions": {
        "ThenSubgraphIndex": (4, "i", 0),
        "ElseSubgraphIndex": (6, "i", 0),
    },
    "Int32Vector": {
        "Values": (4, "[i", 0),
    },
    "L2NormOptions": {
        "FusedActivationFunction": (4, "b", 0),
    },
    "LSHProjectionOptions": {
        "Type": (4, "b", 0),
    },
    "LSTMOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "CellClip": (6, "f", 0.0),
        "ProjClip": (8, "f", 0.0),
        "KernelType": (10, "b", 0),
        "AsymmetricQuantizeInputs": (12, "?", False),
    },
    "LeakyReluOptions": {
        "Alpha": (4, "f", 0.0),
    },
    "LessEqualOptions": {},
    "LessOptions": {},
    "LocalResponseNormalizationOptions": {
        "Radius": (4, "i", 0),
        "Bias": (6, "f", 0.0),
        "Alpha": (8, "f", 0.0),
        "Beta": (10, "f", 0.0),
    },
    "LogSoftmaxOptions": {},
    "LogicalAndOptions": {},
    "LogicalNotOptions": {},
    "LogicalOrOptions": {},
    "MatrixDiagOptions": {},
    "MatrixSetDiagOptions": {},
    "MaximumMinimumOptions": {},
    "Metadata": {
        "Name": (4, "text", 0),
        "Buffer": (6, "I", 0),
    },
    "MirrorPadOptions": {
        "Mode": (4, "b", 0),
    },
    "Model": {
        "Version": (4, "I", 0),
        "OperatorCodes": (6, "[OperatorCode", 0),
        "Subgraphs": (8, "[SubGraph", 0),
        "Description": (10, "text", 0),
        "Buffers": (12, "[Buffer", 0),
        "MetadataBuffer": (14, "[i", 0),
        "Metadata": (16, "[Metadata", 0),
        "SignatureDefs": (18, "[SignatureDef", 0),
    },
    "MulOptions": {
        "FusedActivationFunction": (4, "b", 0),
    },
    "NegOptions": {},
    "NonMaxSuppressionV4Options": {},
    "NonMaxSuppressionV5Options": {},
    "NotEqualOptions": {},
    "OneHotOptions": {
        "Axis": (4, "i", 0),
    },
    "Operator": {
        "OpcodeIndex": (4, "I", 0),
        "Inputs": (6, "[i", 0),
        "Outputs": (8, "[i", 0),
        "BuiltinOptionsType": (10, "B", 0),
        "BuiltinOptions": (12, "union", 0),
        "CustomOptions": (14, "[B", 0),
        "CustomOptionsFormat": (16, "b", 0),
        "MutatingVariableInputs": (18, "[?", 0),
        "Intermediates": (20, "[i", 0),
        "LargeCustomOptionsOffset": (22, "Q", 0),
        "LargeCustomOptionsSize": (24, "Q", 0),
        "BuiltinOptions2Type": (26, "B", 0),
        "BuiltinOptions2": (28, "union", 0),
        "DebugMetadataIndex": (30, "i", -1),
    },
    "OperatorCode": {
        "DeprecatedBuiltinCode": (4, "b", 0),
        "CustomCode": (6, "text", 0),
        "Version": (8, "i", 1),
        "BuiltinCode": (10, "i", 0),
    },
    "PackOptions": {
        "ValuesCount": (4, "i", 0),
        "Axis": (6, "i", 0),
    },
    "PadOptions": {},
    "PadV2Options": {},
    "Pool2DOptions": {
        "Padding": (4, "b", 0),
        "StrideW": (6, "i", 0),
        "StrideH": (8, "i", 0),
        "FilterWidth": (10, "i", 0),
        "FilterHeight": (12, "i", 0),
        "FusedActivationFunction": (14, "b", 0),
    },
    "PowOptions": {},
    "QuantizationParameters": {
        "Min": (4, "[f", 0),
        "Max": (6, "[f", 0),
        "Scale": (8, "[f", 0),
        "ZeroPoint": (10, "[q", 0),
        "DetailsType": (12, "B", 0),
        "Details": (14, "union", 0),
        "QuantizedDimension": (16, "i", 0),
    },
    "QuantizeOptions": {},
    "RNNOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "AsymmetricQuantizeInputs": (6, "?", False),
    },
    "RandomOptions": {
        "Seed": (4, "q", 0),
        "Seed2": (6, "q", 0),
    },
    "RangeOptions": {},
    "RankOptions": {},
    "ReadVariableOptions": {},
    "ReduceWindowOptions": {
        "ReduceFunction": (4, "i", 0),
    },
    "ReducerOptions": {
        "KeepDims": (4, "?", False),
    },
    "ReshapeOptions": {
        "NewShape": (4, "[i", 0),
    },
    "ResizeBilinearOptions": {
        "AlignCorners": (8, "?", False),
        "HalfPixelCenters": (10, "?", False),
    },
    "ResizeNearestNeighborOptions": {
        "AlignCorners": (4, "?", False),
        "HalfPixelCenters": (6, "?", False),
    },
    "ReverseSequenceOptions": {
        "SeqDim": (4, "i", 0),
        "BatchDim": (6, "i", 0),
    },
    "ReverseV2Options": {},
    "Rfft2dOptions": {},
    "RightShiftOptions": {},
    "SVDFOptions": {
        "Rank": (4, "i", 0),
        "FusedActivationFunction": (6, "b", 0),
        "AsymmetricQuantizeInputs": (8, "?", False),
    },
    "ScatterNdOptions": {},
    "SegmentSumOptions": {},
    "SelectOptions": {},
    "SelectV2Options": {},
    "SequenceRNNOptions": {
        "TimeMajor": (4, "?", False),
        "FusedActivationFunction": (6, "b", 0),
        "AsymmetricQuantizeInputs": (8, "?", False),
    },
    "ShapeOptions": {
        "OutType": (4, "b", 0),
    },
    "SignOptions": {},
    "SignatureDef": {
        "Inputs": (4, "[TensorMap", 0),
        "Outputs": (6, "[TensorMap", 0),
        "SignatureKey": (8, "text", 0),
        "SubgraphIndex": (12, "I", 0),
    },
    "SkipGramOptions": {
        "NgramSize": (4, "i", 0),
        "MaxSkipSize": (6, "i", 0),
        "IncludeAllNgrams": (8, "?", False),
    },
    "SliceOptions": {},
    "SoftmaxOptions": {
        "Beta": (4, "f", 0.0),
    },
    "SpaceToBatchNDOptions": {},
    "SpaceToDepthOptions": {
        "BlockSize": (4, "i", 0),
    },
    "SparseToDenseOptions": {
        "ValidateIndices": (4, "?", False),
    },
    "SparsityParameters": {
        "TraversalOrder": (4, "[i", 0),
        "BlockMap": (6, "[i", 0),
        "DimMetadata": (8, "[DimensionMetadata", 0),
    },
    "SplitOptions": {
        "NumSplits": (4, "i", 0),
    },
    "SplitVOptions": {
        "NumSplits": (4, "i", 0),
    },
    "SquareOptions": {},
    "SquaredDifferenceOptions": {},
    "SqueezeOptions": {
        "SqueezeDims": (4, "[i", 0),
    },
    "StableHLOCompositeOptions": {
        "Name": (4, "text", 0),
        "DecompositionSubgraphIndex": (6, "i", 0),
        "CompositeAttributes": (8, "[B", 0),
        "CompositeAttributesFormat": (10, "b", 0),
        "Version": (12, "i", 0),
    },
    "StablehloBroadcastInDimOptions": {
        "BroadcastDimensions": (4, "[q", 0),
    },
    "StablehloCompareOptions": {
        "ComparisonDirection": (4, "I", 0),
        "CompareType": (6, "I", 0),
    },
    "StablehloConcatenateOptions": {
        "Dimension": (4, "q", 0),
    },
    "StablehloConvolutionOptions": {
        "WindowStrides": (4, "[q", 0),
        "Padding": (6, "[q", 0),
        "LhsDilation": (8, "[q", 0),
        "RhsDilation": (10, "[q", 0),
        "WindowReversal": (12, "[?", 0),
        "InputBatchDimension": (14, "q", 0),
        "InputFeatureDimension": (16, "q", 0),
        "InputSpatialDimensions": (18, "[q", 0),
        "KernelInputFeatureDimension": (20, "q", 0),
        "KernelOutputFeatureDimension": (22, "q", 0),
        "KernelSpatialDimensions": (24, "[q", 0),
        "OutputBatchDimension": (26, "q", 0),
        "OutputFeatureDimension": (28, "q", 0),
        "OutputSpatialDimensions": (30, "[q", 0),
        "FeatureGroupCount": (32, "q", 0),
        "BatchGroupCount": (34, "q", 0),
        "PrecisionConfig": (36, "[I", 0),
    },
    "StablehloCustomCallOptions": {
        "CallTargetName": (4, "text", 0),
        "HasSideEffect": (6, "?", False),
        "BackendConfig": (8, "text", 0),
        "ApiVersion": (10, "i", 0),
        "CalledComputations": (12, "[i", 0),
        "CustomAttributes": (14, "[B", 0),
    },
    "StablehloDotGeneralOptions": {
        "LhsBatchingDimensions": (4, "[q", 0),
        "RhsBatchingDimensions": (6, "[q", 0),
        "LhsContractingDimensions": (8, "[q", 0),
        "RhsContractingDimensions": (10, "[q", 0),
        "PrecisionConfig": (12, "[I", 0),
    },
    "StablehloDynamicSliceOptions": {
        "SliceSizes": (4, "[q", 0),
    },
    "StablehloGatherOptions": {
        "OffsetDims": (4, "[q", 0),
        "CollapsedSliceDims": (6, "[q", 0),
        "StartIndexMap": (8, "[q", 0),
        "IndexVectorDim": (10, "q", 0),
        "SliceSizes": (12, "[q", 0),
        "IndicesAreSorted": (14, "?", False),
    },
    "StablehloIotaOptions": {
        "IotaDimension": (4, "q", 0),
    },
    "StablehloPadOptions": {
        "EdgePaddingLow": (4, "[q", 0),
        "EdgePaddingHigh": (6, "[q", 0),
        "InteriorPadding": (8, "[q", 0),
    },
    "StablehloReduceOptions": {
        "Dimensions": (4, "[q", 0),
        "BodySubgraphIndex": (6, "i", 0),
    },
    "StablehloReduceWindowOptions": {
        "WindowDimensions": (4, "[q", 0),
        "WindowStrides": (6, "[q", 0),
        "BaseDilations": (8, "[q", 0),
        "WindowDilations": (10, "[q", 0),
        "Padding": (12, "[q", 0),
        "BodySubgraphIndex": (14, "i", 0),
    },
    "StablehloRngBitGeneratorOptions": {
        "Algorithm": (4, "b", 0),
    },
    "StablehloScatterOptions": {
        "IndicesAreSorted": (4, "?", False),
        "UpdateWindowDims": (6, "[q", 0),
        "InsertedWindowDims": (8, "[q", 0),
        "ScatterDimsToOperandDims": (10, "[q", 0),
        "IndexVectorDim": (12, "q", 0),
        "UniqueIndices": (14, "?", False),
        "UpdateComputationSubgraphIndex": (16, "i", 0),
    },
    "StablehloShiftLeftOptions": {},
    "StablehloSliceOptions": {
        "StartIndices": (4, "[q", 0),
        "LimitIndices": (6, "[q", 0),
        "Strides": (8, "[q", 0),
    },
    "StablehloSortOptions": {
        "Dimension": (4, "q", 0),
        "IsStable": (6, "?", False),
        "ComparatorSubgraphIndex": (8, "i", 0),
    },
    "StablehloTransposeOptions": {
        "Permutation": (4, "[q", 0),
    },
    "StablehloWhileOptions": {
        "CondSubgraphIndex": (4, "i", 0),
        "BodySubgraphIndex": (6, "i", 0),
    },
    "StridedSliceOptions": {
        "BeginMask": (4, "i", 0),
        "EndMask": (6, "i", 0),
        "EllipsisMask": (8, "i", 0),
        "NewAxisMask": (10, "i", 0),
        "ShrinkAxisMask": (12, "i", 0),
        "Offset": (14, "?", False),
    },
    "SubGraph": {
        "Tensors": (4, "[Tensor", 0),
        "Inputs": (6, "[i", 0),
        "Outputs": (8, "[i", 0),
        "Operators": (10, "[Operator", 0),
        "Name": (12, "text", 0),
        "DebugMetadataIndex": (14, "i", -1),
    },
    "SubOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "PotScaleInt16": (6, "?", True),
    },
    "Tensor": {
        "Shape": (4, "[i", 0),
        "Type": (6, "b", 0),
        "Buffer": (8, "I", 0),
        "Name": (10, "text", 0),
        "Quantization": (12, "QuantizationParameters", 0),
        "IsVariable": (14, "?", False),
        "Sparsity": (16, "SparsityParameters", 0),
        "ShapeSignature": (18, "[i", 0),
        "HasRank": (20, "?", False),
        "VariantTensors": (22, "[VariantSubType", 0),
    },
    "TensorMap": {
        "Name": (4, "text", 0),
        "TensorIndex": (6, "I", 0),
    },
    "TileOptions": {},
    "TopKV2Options": {},
    "TransposeConvOptions": {
        "Padding": (4, "b", 0),
        "StrideW": (6, "i", 0),
        "StrideH": (8, "i", 0),
        "FusedActivationFunction": (10, "b", 0),
        "QuantizedBiasType": (12, "b", 0),
    },
    "TransposeOptions": {},
    "Uint16Vector": {
        "Values": (4, "[H", 0),
    },
    "Uint8Vector": {
        "Values": (4, "[B", 0),
    },
    "UnidirectionalSequenceLSTMOptions": {
        "FusedActivationFunction": (4, "b", 0),
        "CellClip": (6, "f", 0.0),
        "ProjClip": (8, "f", 0.0),
        "TimeMajor": (10, "?", False),
        "AsymmetricQuantizeInputs": (12, "?", False),
        "DiagonalRecurrentTensors": (14, "?", False),
    },
    "UniqueOptions": {
        "IdxOutType": (4, "b", 2),
    },
    "UnpackOptions": {
        "Num": (4, "i", 0),
        "Axis": (6, "i", 0),
    },
    "UnsortedSegmentMaxOptions": {},
    "UnsortedSegmentMinOptions": {},
    "UnsortedSegmentProdOptions": {},
    "UnsortedSegmentSumOptions": {},
    "VarHandleOptions": {
        "Container": (4, "text", 0),
        "SharedName": (6, "text", 0),
    },
    "VariantSubType": {
        "Shape": (4, "[i", 0),
        "Type": (6, "b", 0),
        "HasRank": (8, "?", False),
    },
    "WhereOptions": {},
    "WhileOptions": {
        "CondSubgraphIndex": (4, "i", 0),
        "BodySubgraphIndex": (6, "i", 0),
    },
    "ZerosLikeOptions": {},
}


class ActivationFunctionType:

    """The numbers of ActivationFunctionType."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


class BuiltinOperator:

    """The numbers of BuiltinOperator."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU_N1_TO_1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    CONCAT_EMBEDDINGS = 29
    SKIP_GRAM = 30
    CALL = 31
    CUSTOM = 32
    EMBEDDING_LOOKUP_SPARSE = 33
    PAD = 34
    UNIDIRECTIONAL_SEQUENCE_RNN = 35
    GATHER = 36
    BATCH_TO_SPACE_ND = 37
    SPACE_TO_BATCH_ND = 38
    TRANSPOSE = 39
    MEAN = 40
    SUB = 41
    DIV = 42
    SQUEEZE = 43
    UNIDIRECTIONAL_SEQUENCE_LSTM = 44
    STRIDED_SLICE = 45
    BIDIRECTIONAL_SEQUENCE_RNN = 46
    EXP = 47
    TOPK_V2 = 48
    SPLIT = 49
    LOG_SOFTMAX = 50
    DELEGATE = 51
    BIDIRECTIONAL_SEQUENCE_LSTM = 52
    CAST = 53
    PRELU = 54
    MAXIMUM = 55
    ARG_MAX = 56
    MINIMUM = 57
    LESS = 58
    NEG = 59
    PADV2 = 60
    GREATER = 61
    GREATER_EQUAL = 62
    LESS_EQUAL = 63
    SELECT = 64
    SLICE = 65
    SIN = 66
    TRANSPOSE_CONV = 67
    SPARSE_TO_DENSE = 68
    TILE = 69
    EXPAND_DIMS = 70
    EQUAL = 71
    NOT_EQUAL = 72
    LOG = 73
    SUM = 74
    SQRT = 75
    RSQRT = 76
    SHAPE = 77
    POW = 78
    ARG_MIN = 79
    FAKE_QUANT = 80
    REDUCE_PROD = 81
    REDUCE_MAX = 82
    PACK = 83
    LOGICAL_OR = 84
    ONE_HOT = 85
    LOGICAL_AND = 86
    LOGICAL_NOT = 87
    UNPACK = 88
    REDUCE_MIN = 89
    FLOOR_DIV = 90
    REDUCE_ANY = 91
    SQUARE = 92
    ZEROS_LIKE = 93
    FILL = 94
    FLOOR_MOD = 95
    RANGE = 96
    RESIZE_NEAREST_NEIGHBOR = 97
    LEAKY_RELU = 98
    SQUARED_DIFFERENCE = 99
    MIRROR_PAD = 100
    ABS = 101
    SPLIT_V = 102
    UNIQUE = 103
    CEIL = 104
    REVERSE_V2 = 105
    ADD_N = 106
    GATHER_ND = 107
    COS = 108
    WHERE = 109
    RANK = 110
    ELU = 111
    REVERSE_SEQUENCE = 112
    MATRIX_DIAG = 113
    QUANTIZE = 114
    MATRIX_SET_DIAG = 115
    ROUND = 116
    HARD_SWISH = 117
    IF = 118
    WHILE = 119
    NON_MAX_SUPPRESSION_V4 = 120
    NON_MAX_SUPPRESSION_V5 = 121
    SCATTER_ND = 122
    SELECT_V2 = 123
    DENSIFY = 124
    SEGMENT_SUM = 125
    BATCH_MATMUL = 126
    PLACEHOLDER_FOR_GREATER_OP_CODES = 127
    CUMSUM = 128
    CALL_ONCE = 129
    BROADCAST_TO = 130
    RFFT2D = 131
    CONV_3D = 132
    IMAG = 133
    REAL = 134
    COMPLEX_ABS = 135
    HASHTABLE = 136
    HASHTABLE_FIND = 137
    HASHTABLE_IMPORT = 138
    HASHTABLE_SIZE = 139
    REDUCE_ALL = 140
    CONV_3D_TRANSPOSE = 141
    VAR_HANDLE = 142
    READ_VARIABLE = 143
    ASSIGN_VARIABLE = 144
    BROADCAST_ARGS = 145
    RANDOM_STANDARD_NORMAL = 146
    BUCKETIZE = 147
    RANDOM_UNIFORM = 148
    MULTINOMIAL = 149
    GELU = 150
    DYNAMIC_UPDATE_SLICE = 151
    RELU_0_TO_1 = 152
    UNSORTED_SEGMENT_PROD = 153
    UNSORTED_SEGMENT_MAX = 154
    UNSORTED_SEGMENT_SUM = 155
    ATAN2 = 156
    UNSORTED_SEGMENT_MIN = 157
    SIGN = 158
    BITCAST = 159
    BITWISE_XOR = 160
    RIGHT_SHIFT = 161
    STABLEHLO_LOGISTIC = 162
    STABLEHLO_ADD = 163
    STABLEHLO_DIVIDE = 164
    STABLEHLO_MULTIPLY = 165
    STABLEHLO_MAXIMUM = 166
    STABLEHLO_RESHAPE = 167
    STABLEHLO_CLAMP = 168
    STABLEHLO_CONCATENATE = 169
    STABLEHLO_BROADCAST_IN_DIM = 170
    STABLEHLO_CONVOLUTION = 171
    STABLEHLO_SLICE = 172
    STABLEHLO_CUSTOM_CALL = 173
    STABLEHLO_REDUCE = 174
    STABLEHLO_ABS = 175
    STABLEHLO_AND = 176
    STABLEHLO_COSINE = 177
    STABLEHLO_EXPONENTIAL = 178
    STABLEHLO_FLOOR = 179
    STABLEHLO_LOG = 180
    STABLEHLO_MINIMUM = 181
    STABLEHLO_NEGATE = 182
    STABLEHLO_OR = 183
    STABLEHLO_POWER = 184
    STABLEHLO_REMAINDER = 185
    STABLEHLO_RSQRT = 186
    STABLEHLO_SELECT = 187
    STABLEHLO_SUBTRACT = 188
    STABLEHLO_TANH = 189
    STABLEHLO_SCATTER = 190
    STABLEHLO_COMPARE = 191
    STABLEHLO_CONVERT = 192
    STABLEHLO_DYNAMIC_SLICE = 193
    STABLEHLO_DYNAMIC_UPDATE_SLICE = 194
    STABLEHLO_PAD = 195
    STABLEHLO_IOTA = 196
    STABLEHLO_DOT_GENERAL = 197
    STABLEHLO_REDUCE_WINDOW = 198
    STABLEHLO_SORT = 199
    STABLEHLO_WHILE = 200
    STABLEHLO_GATHER = 201
    STABLEHLO_TRANSPOSE = 202
    DILATE = 203
    STABLEHLO_RNG_BIT_GENERATOR = 204
    REDUCE_WINDOW = 205
    STABLEHLO_COMPOSITE = 206
    STABLEHLO_SHIFT_LEFT = 207
    STABLEHLO_CBRT = 208


class BuiltinOptions:

    """The numbers of BuiltinOptions."""

    NONE = 0
    Conv2DOptions = 1
    DepthwiseConv2DOptions = 2
    ConcatEmbeddingsOptions = 3
    LSHProjectionOptions = 4
    Pool2DOptions = 5
    SVDFOptions = 6
    RNNOptions = 7
    FullyConnectedOptions = 8
    SoftmaxOptions = 9
    ConcatenationOptions = 10
    AddOptions = 11
    L2NormOptions = 12
    LocalResponseNormalizationOptions = 13
    LSTMOptions = 14
    ResizeBilinearOptions = 15
    CallOptions = 16
    ReshapeOptions = 17
    SkipGramOptions = 18
    SpaceToDepthOptions = 19
    EmbeddingLookupSparseOptions = 20
    MulOptions = 21
    PadOptions = 22
    GatherOptions = 23
    BatchToSpaceNDOptions = 24
    SpaceToBatchNDOptions = 25
    TransposeOptions = 26
    ReducerOptions = 27
    SubOptions = 28
    DivOptions = 29
    SqueezeOptions = 30
    SequenceRNNOptions = 31
    StridedSliceOptions = 32
    ExpOptions = 33
    TopKV2Options = 34
    SplitOptions = 35
    LogSoftmaxOptions = 36
    CastOptions = 37
    DequantizeOptions = 38
    MaximumMinimumOptions = 39
    ArgMaxOptions = 40
    LessOptions = 41
    NegOptions = 42
    PadV2Options = 43
    GreaterOptions = 44
    GreaterEqualOptions = 45
    LessEqualOptions = 46
    SelectOptions = 47
    SliceOptions = 48
    TransposeConvOptions = 49
    SparseToDenseOptions = 50
    TileOptions = 51
    ExpandDimsOptions = 52
    EqualOptions = 53
    NotEqualOptions = 54
    ShapeOptions = 55
    PowOptions = 56
    ArgMinOptions = 57
    FakeQuantOptions = 58
    PackOptions = 59
    LogicalOrOptions = 60
    OneHotOptions = 61
    LogicalAndOptions = 62
    LogicalNotOptions = 63
    UnpackOptions = 64
    FloorDivOptions = 65
    SquareOptions = 66
    ZerosLikeOptions = 67
    FillOptions = 68
    BidirectionalSequenceLSTMOptions = 69
    BidirectionalSequenceRNNOptions = 70
    UnidirectionalSequenceLSTMOptions = 71
    FloorModOptions = 72
    RangeOptions = 73
    ResizeNearestNeighborOptions = 74
    LeakyReluOptions = 75
    SquaredDifferenceOptions = 76
    MirrorPadOptions = 77
    AbsOptions = 78
    SplitVOptions = 79
    UniqueOptions = 80
    ReverseV2Options = 81
    AddNOptions = 82
    GatherNdOptions = 83
    CosOptions = 84
    WhereOptions = 85
    RankOptions = 86
    ReverseSequenceOptions = 87
    MatrixDiagOptions = 88
    QuantizeOptions = 89
    MatrixSetDiagOptions = 90
    HardSwishOptions = 91
    IfOptions = 92
    WhileOptions = 93
    DepthToSpaceOptions = 94
    NonMaxSuppressionV4Options = 95
    NonMaxSuppressionV5Options = 96
    ScatterNdOptions = 97
    SelectV2Options = 98
    DensifyOptions = 99
    SegmentSumOptions = 100
    BatchMatMulOptions = 101
    CumsumOptions = 102
    CallOnceOptions = 103
    BroadcastToOptions = 104
    Rfft2dOptions = 105
    Conv3DOptions = 106
    HashtableOptions = 107
    HashtableFindOptions = 108
    HashtableImportOptions = 109
    HashtableSizeOptions = 110
    VarHandleOptions = 111
    ReadVariableOptions = 112
    AssignVariableOptions = 113
    RandomOptions = 114
    BucketizeOptions = 115
    GeluOptions = 116
    DynamicUpdateSliceOptions = 117
    UnsortedSegmentProdOptions = 118
    UnsortedSegmentMaxOptions = 119
    UnsortedSegmentMinOptions = 120
    UnsortedSegmentSumOptions = 121
    ATan2Options = 122
    SignOptions = 123
    BitcastOptions = 124
    BitwiseXorOptions = 125
    RightShiftOptions = 126


class BuiltinOptions2:

    """The numbers of BuiltinOptions2."""

    NONE = 0
    StablehloConcatenateOptions = 1
    StablehloBroadcastInDimOptions = 2
    StablehloSliceOptions = 3
    StablehloConvolutionOptions = 4
    StablehloCustomCallOptions = 5
    StablehloReduceOptions = 6
    StablehloScatterOptions = 7
    StablehloCompareOptions = 8
    StablehloDynamicSliceOptions = 9
    StablehloPadOptions = 10
    StablehloIotaOptions = 11
    StablehloDotGeneralOptions = 12
    StablehloReduceWindowOptions = 13
    StablehloSortOptions = 14
    StablehloWhileOptions = 15
    StablehloGatherOptions = 16
    StablehloTransposeOptions = 17
    DilateOptions = 18
    StablehloRngBitGeneratorOptions = 19
    ReduceWindowOptions = 20
    StableHLOCompositeOptions = 21
    StablehloShiftLeftOptions = 22


class FullyConnectedOptionsWeightsFormat:

    """The numbers of FullyConnectedOptionsWeightsFormat."""

    DEFAULT = 0
    SHUFFLED4x16INT8 = 1


class MirrorPadMode:

    """The numbers of MirrorPadMode."""

    REFLECT = 0
    SYMMETRIC = 1


class Padding:

    """The numbers of Padding."""

    SAME = 0
    VALID = 1


class TensorType:

    """The numbers of TensorType."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17
    BFLOAT16 = 18
