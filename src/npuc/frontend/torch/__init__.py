"""The PyTorch importer: exported programs (`.pt2`), TorchScript (`.pt`) and live modules.

torch itself exports and decomposes; rules turn ATen ops into Top ops. Nothing here imports torch until a model comes
along, so that npuc works without it and says which extra to install.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.extras import require_torch
from npuc.frontend.options import ImportOptions
from npuc.frontend.torch.registry import supported

if TYPE_CHECKING:
    from npuc.ir import DType, Graph


def import_exported(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import an exported program (`.pt2`); the result is verified, not yet canonical."""
    require_torch()
    from npuc.frontend.torch.importer import import_program
    from npuc.frontend.torch.sources import of_exported_file

    options = options or ImportOptions()
    return import_program(lambda: of_exported_file(Path(path), options), options, str(path))


def import_torchscript(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a TorchScript archive, traced or scripted; the result is verified, not yet canonical."""
    require_torch()
    from npuc.frontend.torch.importer import import_program
    from npuc.frontend.torch.sources import of_script_file

    options = options or ImportOptions()
    return import_program(lambda: of_script_file(Path(path), options), options, str(path))


def import_module(
    module: Any,
    example_inputs: Any,
    example_kwargs: dict[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Graph:
    """Import a live module, function, ScriptModule or ExportedProgram at the shapes of its example inputs."""
    require_torch()
    from npuc.frontend.torch.importer import import_program
    from npuc.frontend.torch.sources import of_live

    return import_program(
        lambda: of_live(module, example_inputs, example_kwargs or {}), options or ImportOptions(), None
    )


def exported_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The inputs of an exported program by name."""
    require_torch()
    from npuc.frontend.torch.sources import exported_input_types

    return exported_input_types(path, options)


def torchscript_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The inputs of a TorchScript archive by name; it does not state their types, which are taken as float."""
    require_torch()
    from npuc.frontend.torch.sources import script_input_types

    return script_input_types(path, options)


__all__ = [
    "exported_inputs",
    "import_exported",
    "import_module",
    "import_torchscript",
    "supported",
    "torchscript_inputs",
]
