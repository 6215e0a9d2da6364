"""AMD Vitis AI 3.5: its quantizers, compilers, runtime and tools on npuc."""

from npuc.compat.vendor import Vendor

_HERE = "npuc.compat.vitis"
_TORCH = f"{_HERE}.pytorch_nndct"

VENDOR = Vendor(
    name="vitis",
    title="AMD Vitis AI",
    page="migrate-vitis-ai.md",
    commands={
        "vai_c_xir": f"{_HERE}.vai_c:xir",
        "vai_c_tensorflow": f"{_HERE}.vai_c:tensorflow",
        "vai_c_tensorflow2": f"{_HERE}.vai_c:tensorflow2",
        "vai_c_caffe": f"{_HERE}.vai_c:caffe",
        "xdputil": f"{_HERE}.xdputil:main",
        "vaitrace": f"{_HERE}.vaitrace:main",
        "vai_q_tensorflow": f"{_HERE}.vai_q_tensorflow:main",
    },
    modules={
        "vai_q_onnx": f"{_HERE}.vai_q_onnx",
        "vai_q_onnx.operators.vai_ops.qdq_ops": f"{_HERE}.qdq_ops",
        "pytorch_nndct": _TORCH,
        "pytorch_nndct.apis": f"{_TORCH}.apis",
        "pytorch_nndct.nn": f"{_TORCH}.nn",
        "pytorch_nndct.nn.modules.functional": f"{_TORCH}.functional",
        "pytorch_nndct.utils": f"{_TORCH}.utils",
        "pytorch_nndct.bfp": f"{_TORCH}.bfp",
        "pytorch_nndct.pruning": f"{_TORCH}.pruning",
        "pytorch_nndct.utils.slim": f"{_TORCH}.slim",
        "pytorch_nnndct.utils": f"{_TORCH}.utils",
        "pytorch_nnfn.functional": f"{_TORCH}.functional",
        "pytorch_qat": f"{_TORCH}.qat",
        "tf_nndct.pruning": f"{_HERE}.keras_pruning",
        "wego_torch": f"{_HERE}.wego_torch",
        "onnxruntime_vitisai": f"{_HERE}.execution_provider",
        "vaitrace_py": f"{_HERE}.vaitrace_py",
        "xir": f"{_HERE}.xir",
        "vart": f"{_HERE}.vart",
        "runner": f"{_HERE}.vart",
        "vitis_ai_library": f"{_HERE}.graph_runner",
        "tensorflow_model_optimization.quantization.keras.vitis_quantize": f"{_HERE}.vitis_quantize",
        "tensorflow_model_optimization.quantization.keras.vitis_inspect": f"{_HERE}.vitis_inspect",
    },
    headers="include",
    libraries=(
        "xir",
        "vart-runner",
        "vitis_ai_library-graph_runner",
        "vitis_ai_library-runner-helper",
        "npuc",
    ),
    extensions={
        "onnxruntime": f"{_HERE}.onnxruntime_build",
        "tensorflow": f"{_HERE}.wego_tensorflow",
    },
    error_identifiers={
        "E101": "XIR_FILE_NOT_EXIST",
        "E702": "XCOM_USER_INVALID_TARGET",
        "E704": "VART_VERSION_MISMATCH_ERROR",
    },
)
