"""Amlogic's Acuity toolkit: `pegasus`, its files and its case code on npuc.

pegasus             the command: one module each for import, generate, quantize, inference, export, measure
model_files         X.json and X.data; `layers` is the view of a network that X.json has
input_meta          X_inputmeta.yml: where samples are and how they become inputs
quantize_file       X.quantize: range, scale and type of every tensor, and the layers with a type of their own
quantization        from these files to the integer network
case_code           the C application that `export ovxlib` leaves
"""

from npuc.compat.vendor import Vendor

_HERE = "npuc.compat.acuity"

VENDOR = Vendor(
    name="acuity",
    title="Amlogic Acuity",
    page="migrate-acuity.md",
    commands={
        "pegasus": f"{_HERE}.pegasus:main",
        "pegasus.py": f"{_HERE}.pegasus:main",
        "checkenv.py": f"{_HERE}.tools:checkenv",
        "extractoutput.py": f"{_HERE}.tools:extract_output",
    },
    option_names={"--input-shape": "--input-size-list"},
)
