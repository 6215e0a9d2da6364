"""SOPHGO TPU-MLIR: its commands and TpuLang on npuc."""

from npuc.compat.vendor import Vendor

VENDOR = Vendor(
    name="tpumlir",
    title="SOPHGO TPU-MLIR",
    page="migrate-tpu-mlir.md",
    commands={
        "model_transform.py": "npuc.compat.tpumlir.transform_command:main",
        "run_calibration.py": "npuc.compat.tpumlir.calibration_command:main",
        "model_deploy.py": "npuc.compat.tpumlir.deploy_command:main",
        "model_runner.py": "npuc.compat.tpumlir.runner_command:main",
        "npz_tool.py": "npuc.compat.tpumlir.npz_tool:main",
    },
)
