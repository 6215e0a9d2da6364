"""The C sources that an application is made of: the runtime's, of the same release as this package, and the templates."""

from __future__ import annotations

from pathlib import Path

import npuc
from npuc.errors import InternalError

_SHARED = (
    "npu_model.c", "file.c", "file_digest.c", "file_signature.c", "ed25519.c", "sha256.c", "sha512.c",
    "sim_run.c", "sim_execute.c", "sim_layers.c", "sim_order.c", "sparse_weights.c",
    "sim_decode.c", "conv.c", "matmul.c", "gemm_portable.c", "isa.c", "threads.c", "loops.c", "eltwise.c", "pooling.c",
    "softmax.c", "table.c", "norm.c", "recurrent.c", "reduce.c", "resize.c", "sim_streams.c", "weights.c",
    "weight_contexts.c", "custom.c",
    "sim_floats.c", "blocks.c", "float_gemm.c", "float_rows.c", "float_vector.c", "npu_detect.c", "quantized_lstm.c",
    "host.c", "host_elementwise.c", "host_linear.c", "host_move.c", "host_reduce.c", "host_select.c", "host_window.c",
    "host_custom.c",
)  # fmt: skip

HOSTED = (
    *_SHARED, "npu.c", "npu_jobs.c", "npu_trace.c",
    "gemm_avx2.c", "gemm_avx512.c", "gemm_neon.c", "gemm_neondot.c", "sha256_ni.c", "sim_sanitize.c", "image_resize.c",
    "weight_context_plan.c",
)  # fmt: skip
"""The runtime for a system with files, threads and a heap."""

STANDALONE = (*_SHARED, "npu_static.c")
"""The runtime for a machine that has none of them."""

PLUGINS = {HOSTED: ("plugin.c", "plugin_ops.c"), STANDALONE: ("plugin_static.c", "plugin_ops.c")}
"""What a form has beside that if the model has operators or kernels of libraries, with `npu_plugin.h` and `plugin_ops.h`."""

HEADERS = (
    "cpu.h", "custom.h", "file_digest.h", "file_rules.h", "gemm.h", "gemm_common.h", "gemm_neon.h", "loops.h",
    "npu_hosted.h", "npu_model.h", "threads.h", "requant.h", "sha256.h", "sha512.h", "sim.h", "sim_execute.h",
    "sim_layers.h", "sim_streams.h", "stage.h", "wide.h", "sim_floats.h", "floats.h", "float_tile.h", "host.h",
    "host_custom.h", "sparse_weights.h", "weight_bits.h", "weight_context_form.h", "weight_contexts.h",
)  # fmt: skip
"""Headers beside the sources; those of `include` come as a whole."""

PUBLIC = (
    "npu.h", "npu.hpp", "npu_detect.h", "npu_kernel.h", "npu_networks.h", "npu_static.h", "npuc/file.h", "npuc/float.h",
    "npuc/gemm.h", "npuc/host.h", "npuc/image.h", "npuc/isa.h", "npuc/kernels.h", "npuc/kinds.h",
    "npuc/npuc.h", "npuc/reader.h", "npuc/signature.h", "npuc/sim.h", "npuc/vector.h", "npuc/weights.h",
)  # fmt: skip
"""The headers of `include` that the runtime needs."""


def runtime_files(form: tuple[str, ...], plugins: bool = False) -> dict[str, bytes]:
    """The files of a form of the runtime by their names in an application; `plugins` if libraries are in it."""
    include, src = _folders()
    files = {f"runtime/include/{name}": include / name for name in PUBLIC}
    files |= {f"runtime/src/{name}": src / name for name in (*form, *HEADERS)}
    if plugins:
        files["runtime/include/npu_plugin.h"] = include / "npu_plugin.h"
        files |= {f"runtime/src/{name}": src / name for name in (*PLUGINS[form], "plugin_ops.h")}
    try:
        return {name: path.read_bytes() for name, path in files.items()}
    except OSError as error:
        raise InternalError(
            f"a C source of npuc cannot be read: {error.strerror}", where=str(error.filename)
        ) from error


def public_header(name: str) -> str:
    """A header of the C API, such as `npu.h`."""
    return (_folders()[0] / name).read_text(encoding="utf-8")


def template(name: str) -> str:
    """A file that an application starts from."""
    return (Path(__file__).parent / "app" / name).read_text()


def _folders() -> tuple[Path, Path]:
    """Where the public headers and the sources are: in a checkout, or in the installed package."""
    checkout = Path(__file__).parents[4] / "native"
    candidates = [(checkout / "include", checkout / "src")]
    candidates += [(Path(folder) / "include", Path(folder) / "_native" / "src") for folder in npuc.__path__]
    for include, src in candidates:
        if (include / "npu.h").is_file() and (src / "npu_model.c").is_file():
            return include, src
    raise InternalError(
        "the C sources are not in the installed package",
        fix="Install npuc again: pip install --force-reinstall npuc",
    )
