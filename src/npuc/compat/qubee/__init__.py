"""Mobilint qubee 0.8: its Python package on npuc."""

from npuc.compat.vendor import Vendor

_HERE = "npuc.compat.qubee"

VENDOR = Vendor(
    name="qubee",
    title="Mobilint qubee",
    page="migrate-qubee.md",
    modules={
        "qubee": f"{_HERE}.api",
        "qubee.calibration": f"{_HERE}.calibration",
        "qubee.mmc": f"{_HERE}.mmc",
        "qubee.model_dict": f"{_HERE}.model_dict",
        "qubee.utils": f"{_HERE}.utils",
    },
)
