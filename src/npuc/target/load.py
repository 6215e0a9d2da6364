"""Find target files, resolve what they extend, and make targets of them.

A name is looked up as `NAME.yaml` in the folders of `NPUC_TARGET_PATH`, in `~/.config/npuc/targets`, then among the
presets; anything with a slash or an ending is a path. A file that extends its own name means the one that it hides.
What no file has may be a vendor's name of a chip, a fingerprint, or a vendor's .json file that states either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from npuc.errors import FileMissingError, NpucError, TargetError, UnknownTargetError
from npuc.files import existing_text
from npuc.format_versions import TARGET_FILE
from npuc.target.model import Target
from npuc.target.problems import Origin, problems_of, target_error
from npuc.target.vendor_names import (
    FINGERPRINTS,
    canonical,
    is_fingerprint,
    name_in,
    names_like,
    preset_of,
)
from npuc.target.vocabulary import nearest
from npuc.target.yamlfile import Document, read_document

ENVIRONMENT = "NPUC_TARGET_PATH"
MAX_EXTENDS = 8
PRESETS = Path(__file__).parent / "presets"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class TargetFile:
    """A target file that can be found by name."""

    name: str
    path: Path
    preset: bool

    @property
    def shown(self) -> str:
        """The path as users see it; a preset is known by its name."""
        return f"preset {self.name}" if self.preset else str(self.path)


@dataclass(frozen=True)
class Loaded:
    """A target and the files that it is made of, its own first."""

    target: Target
    files: tuple[TargetFile, ...] = field(default=())


def load_target(name_or_path: str | Path) -> Target:
    """The target of that name or in that file.

    >>> load_target("edge-4t").compute.array.pixels
    8
    """
    return load_with_files(name_or_path).target


def load_with_files(name_or_path: str | Path) -> Loaded:
    """Like `load_target`, with the files that the target came from."""
    files: list[TargetFile] = []
    document = _resolve(_find(str(name_or_path)), files)
    data = {"name": files[0].path.stem, **document.data}
    try:
        return Loaded(Target.model_validate(data), tuple(files))
    except ValidationError as error:
        raise target_error(problems_of(error, data, document.origins), files[0].shown) from error


def search_path() -> list[Path]:
    """The folders that are searched for a name, in order; the presets come last."""
    folders = [Path(part).expanduser() for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]
    try:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        folders.append(config / "npuc" / "targets")
    except RuntimeError:
        # A user without a home folder has no targets there.
        pass
    return [*folders, PRESETS]


def available() -> list[TargetFile]:
    """Every target that has a name, sorted; a user's file hides a preset of the same name.

    >>> "edge-1t" in [file.name for file in available()]
    True
    """
    files: dict[str, TargetFile] = {}
    for file in _all_files():
        files.setdefault(file.name, file)
    return sorted(files.values(), key=lambda file: (not file.preset, file.name))


def _all_files() -> Iterator[TargetFile]:
    for folder in search_path():
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.suffix in _ENDINGS and _NAME.fullmatch(entry.stem) and entry.is_file():
                yield TargetFile(entry.stem, entry, folder == PRESETS)


def _find(
    text: str, hidden_by: TargetFile | None = None, folders: Sequence[Path] | None = None
) -> TargetFile:
    if text.lower().endswith(".json"):
        return _find(name_in(text), hidden_by, folders)
    if _is_path(text):
        path = existing_text(text)
        return TargetFile(path.stem, path, path.parent.resolve() == PRESETS.resolve())
    if not _NAME.fullmatch(text):
        raise UnknownTargetError(
            f"'{text[:60]}' is not the name of a target", fix="'npuc targets list' shows what there is"
        )
    passed = hidden_by is None
    for folder in search_path() if folders is None else folders:
        for ending in _ENDINGS:
            path = folder / f"{text}{ending}"
            try:
                there = path.is_file()
            except OSError:
                there = False
            if there and passed:
                return TargetFile(text, path, folder == PRESETS)
            if there and hidden_by is not None and path.resolve() == hidden_by.path.resolve():
                passed = True
    if not passed:
        # The file is not on the search path itself, so it hides nothing.
        return _find(text)
    preset = preset_of(text)
    if preset is not None:
        return _find(preset, folders=[PRESETS])
    if is_fingerprint(text):
        return _with_fingerprint(int(text, 16))
    names = [file.name for file in available()]
    of_vendor = names_like(text)
    hint = nearest(canonical(text), of_vendor) or nearest(text.lower(), names)
    known = (
        f"Names of that kind with a preset are {', '.join(of_vendor)}; the targets"
        if of_vendor
        else "The targets"
    )
    raise UnknownTargetError(
        f"there is no target '{text}'{hint}",
        fix=f"{known} are {', '.join(names)}; a file of your own is given by its path, like ./{text}.yaml",
    )


def _with_fingerprint(fingerprint: int) -> TargetFile:
    """The target of a fingerprint, among those that have a name and those that vendors state."""
    chip = FINGERPRINTS.get(fingerprint)
    if chip is not None:
        return _find(chip)
    for file in available():
        with suppress(NpucError):
            if load_target(file.path).fingerprint == fingerprint:
                return file
    raise UnknownTargetError(
        f"no target has the fingerprint 0x{fingerprint:016x}",
        fix="'npuc targets list --json' shows those of all targets; of vendors' machines "
        + ", ".join(f"0x{number:016x} ({name})" for number, name in FINGERPRINTS.items())
        + " are known",
    )


def _is_path(text: str) -> bool:
    return "/" in text or os.sep in text or text.endswith(_ENDINGS)


def _resolve(file: TargetFile, files: list[TargetFile]) -> Document:
    """The data of a file, merged over that of the target that it extends."""
    chain = [*(entry.path.resolve() for entry in files), file.path.resolve()]
    if len(set(chain)) != len(chain):
        names = " extends ".join(entry.shown for entry in [*files, file])
        raise TargetError(f"targets extend each other in a circle: {names}", where=files[0].shown)
    if len(chain) > MAX_EXTENDS:
        raise TargetError(
            f"extends more than {MAX_EXTENDS} targets, one after the other", where=files[0].shown
        )
    files.append(file)
    document = read_document(file.path, file.shown)
    stated = document.origins.get(("version",))
    TARGET_FILE.check(document.data.get("version"), str(stated or file.shown), TargetError)
    base = document.data.get("extends")
    if base is None:
        return document
    origin = document.origins.get(("extends",))
    under = _resolve(_base(file, base, origin), files)
    # The name, the words and the version of a base are not those of its heirs.
    inherited = {
        key: value
        for key, value in under.data.items()
        if key not in ("name", "description", "extends", "version")
    }
    return Document(merge(inherited, document.data), under.origins | document.origins)


def _base(file: TargetFile, base: Any, origin: Origin | None) -> TargetFile:
    where = str(origin or file.shown)
    if not isinstance(base, str):
        raise TargetError(f"extends: {base!r} is not the name of a target or a path", where=where)
    try:
        if not _is_path(base):
            if file.preset:
                # What a preset means does not depend on the files of a user.
                return _find(base, folders=[PRESETS])
            return _find(base, hidden_by=file if base == file.name else None)
        relative = Path(base)
        if relative.is_absolute() or ".." in relative.parts:
            raise TargetError(
                f"extends: '{base}' lies outside the folder of this file",
                where=where,
                fix="Name a target, or a file in the same folder or below it",
            )
        return _find(str(file.path.parent / relative if file.path.parent.parts else Path(".") / relative))
    except (FileMissingError, UnknownTargetError) as error:
        raise type(error)(f"extends: {error.message}", where=where, fix=error.fix) from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`: groups are merged field by field, everything else is replaced.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
