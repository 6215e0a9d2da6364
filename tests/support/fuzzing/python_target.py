"""One format under Atheris: `python -m support.fuzzing.python_target FORMAT CORPUS FINDINGS [options of libFuzzer]`.

Half of the mutations are libFuzzer's own, half those of the suite, which know the structure of the format. A finding does not
end the run: the file is kept under the name of what went wrong, once for each kind.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import pkgutil
import re
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

GUIDES = {
    "onnx": "npuc.frontend.onnx",
    "tflite": "npuc.frontend.tflite",
    "pb": "npuc.frontend.tensorflow",
    "keras": "npuc.frontend.keras",
    "prototxt": "npuc.frontend.caffe",
    "cfg": "npuc.frontend.darknet",
    "npu": "npuc.program",
    "mlir": "npuc.ir",
    "safetensors": "npuc.ir.weights",
    "target": "npuc.target",
    "schedule": "npuc.schedule.schedule_file",
    "quantization": "npuc.quant.config",
    "table": "npuc.calib.table",
    "listing": "npuc.schedule.listing",
    "npz": "npuc.tensors",
}
"""The package whose branches guide the fuzzer, with all that it imports: loaded at once, since only such modules are watched."""


def _watch() -> None:
    # An editable installation has a finder of its own, whose modules Atheris does not watch; PYTHONPATH leads to the same files.
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "ScikitBuildRedirectingFinder"]
    name = GUIDES[sys.argv[1]]
    with atheris.instrument_imports(include=["npuc"]):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            with contextlib.suppress(ImportError):  # a framework that is not here
                importlib.import_module(module.name)


_watch()
from support.fuzzing.formats import FORMATS, fault  # noqa: E402

MEMORY = 6 << 30


def main() -> None:
    """Fuzz until libFuzzer's limits end it."""
    name, corpus, findings, *options = sys.argv[1:]
    chosen = FORMATS[name]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, f"model.{chosen.suffix}")
    seen: set[str] = set()

    def one(data: bytes) -> None:
        path.write_bytes(data)
        problem = fault(chosen, path)
        kind = re.sub(r"[0-9']+", "", problem)[:60]
        if problem and kind not in seen:
            seen.add(kind)
            found = Path(findings, f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.{chosen.suffix}")
            found.write_bytes(data)
            print(f"FINDING {found.name}: {problem[:300]}", flush=True)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        if chosen.mutate is None or seed % 2 or len(data) < 8:
            return atheris.Mutate(data, most)
        return chosen.mutate(data, seed // 2)[:most]

    atheris.Setup([sys.argv[0], corpus, *options], one, custom_mutator=mutate, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
