"""The demo: import the bundled digits model, look at it, run it, and count how many digits it gets right.

Each step is a command that a user can type; this script only prints it, runs it, and reads the result.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parent
BUILD = EXAMPLES.parent / "build"


def npuc(*arguments: str | Path) -> None:
    """Print an npuc command and run it in the repository's root; stop the demo if it fails."""
    root = EXAMPLES.parent
    words = [str(a.relative_to(root)) if isinstance(a, Path) else a for a in arguments]
    print(f"\n$ npuc {shlex.join(words)}", flush=True)
    status = subprocess.run([Path(sys.executable).with_name("npuc"), *words], cwd=root).returncode
    if status:
        sys.exit(status)


def main() -> None:
    """Run the commands and report the accuracy."""
    samples, program, results = EXAMPLES / "digits_samples.npz", BUILD / "digits.mlir", BUILD / "out.npz"
    BUILD.mkdir(exist_ok=True)

    npuc("import", EXAMPLES / "digits.onnx", "-o", program)
    npuc("show", program)
    npuc("run", program, "--input", samples, "-o", results)

    labels = np.load(samples)["label"]
    guesses = np.load(results)["logits"].reshape(len(labels), 10).argmax(axis=1)
    correct = int((guesses == labels).sum())
    print(f"\n{correct} of {len(labels)} handwritten digits recognized ({correct / len(labels):.1%})")


if __name__ == "__main__":
    main()
