"""SOPHGO TPU-MLIR: its commands and TpuLang on npuc."""

from npuc.compat.vendor import Vendor

VENDOR = Vendor(
    name="tpumlir",
    title="SOPHGO TPU-MLIR",
    page="migrate-tpu-mlir.md",
    commands={
        "npz_tool.py": "npuc.compat.tpumlir.npz_tool:main",
    },
)
