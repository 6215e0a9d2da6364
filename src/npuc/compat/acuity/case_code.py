"""The C application that `pegasus export ovxlib` leaves: npuc's own (`npuc.deploy.c`) with the toolkit's files around it.

Loading, preprocessing and postprocessing are in the files that the toolkit's users know (`vnn_*.c`); what they call is the
runtime and the helpers of npuc's application. The files of `case/` are templates: @NAME@ stands for the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from npuc.deploy.c import application_files
from npuc.files import make_folder, write_atomically
from npuc.program.model import CompiledModel

_TEMPLATES = Path(__file__).parent / "case"
_HIDDEN = {"project.xml": ".project", "cproject.xml": ".cproject"}
_KEPT = ("decode.c", "image.c", "image.h", "kernels.c", "kernels.h", "settings.c", "top.c", "top.h")
"""The files of npuc's application beside its runtime."""
BINARY = "network_binary.nb"
_LINK = """\
# The runtime may stay where the application was written first.
$(shell [ -e runtime ] || [ ! -e ../runtime ] || ln -s ../runtime runtime)
"""


def normal_case(model: CompiledModel, content: bytes, folder: Path, name: str) -> list[Path]:
    """The application in the folder of a model, with the network as NAME.export.data."""
    data = f"{name}.export.data"
    return _write(folder, {**_application(model, content, name, data), data: content})


def packed_case(model: CompiledModel, content: bytes, folder: Path, name: str) -> list[Path]:
    """The application in a folder of its own, with the network as `network_binary.nb`."""
    return _write(folder, {**_application(model, content, name, BINARY), BINARY: content})


def standalone_case(model: CompiledModel, content: bytes, folder: Path, name: str) -> list[Path]:
    """The application without files, heap and threads; `network_binary.nb` is what its arrays hold."""
    files = application_files(model, content, standalone=True)
    makefile = files.pop("Makefile").decode()
    return _write(
        folder, {**files, "makefile.linux": _named(makefile, identifier(name)).encode(), BINARY: content}
    )


def identifier(name: str) -> str:
    """A name that C and make take.

    >>> identifier("mobilenet-v1.0")
    'mobilenet_v1_0'
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain[:1].isalpha() else f"n{plain}"


def _application(model: CompiledModel, content: bytes, name: str, data: str) -> dict[str, bytes]:
    own = application_files(model, content)
    word = identifier(name)
    values = {"NAME": word, "GUARD": word.upper(), "FILE": data}
    files = {
        key: value for key, value in own.items() if key in _KEPT or key.startswith(("runtime/", "plugin"))
    }
    for path in sorted(_TEMPLATES.iterdir()):
        text = path.read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        files[_HIDDEN.get(path.name, path.name.replace("NAME", word))] = text.encode()
    files["makefile.linux"] = (_LINK + _named(own["Makefile"].decode(), word)).encode()
    return files


def _named(makefile: str, word: str) -> str:
    """npuc's Makefile for an application of that name."""
    makefile = makefile.replace(
        "./app sample    run the sample and compare the outputs with the expected ones",
        "./app NETWORK INPUT...",
    )
    return re.sub(r"\bapp\b", word, makefile)


def _write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    written = []
    for name, content in sorted(files.items()):
        path = folder / name
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write(content)
        written.append(path)
    return written
