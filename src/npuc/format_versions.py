"""Versions of the files that npuc writes and reads: one number a format, and one sentence for a file of a later npuc.

A version is raised when a reader of today would misread the files of tomorrow. A reader takes every version from the oldest
to the newest that it knows; small files of each are kept in tests/golden_files, so that it goes on doing so. In files that
people write (targets, schedules, quantization), `version` may be left out, and stands for 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from npuc.errors import FileFormatError, NpucError


@dataclass(frozen=True)
class FormatVersion:
    """A kind of file."""

    name: str
    """What a user calls it."""
    version: int
    """The newest that this npuc reads, and the one that it writes."""
    place: str
    """Where a file states its version."""
    oldest: int = 1
    remedy: str = "write the file again with this one"
    """What helps where npuc cannot be updated."""

    def check(self, stated: Any, where: str | None = None, error: type[NpucError] = FileFormatError) -> None:
        """Raise `error` unless this npuc reads files that state this version; None stands for 1.

        >>> FormatVersion("calibration table", 1, "the first line").check(2, "a.cali")
        Traceback (most recent call last):
            ...
        npuc.errors.FileFormatError: [E102] a.cali: is a calibration table of version 2, and this npuc reads version 1. \
Update npuc, or write the file again with this one.
        """
        stated = 1 if stated is None else stated
        if type(stated) is not int or stated < 1:
            shown = repr(stated)
            raise error(
                f"version: {shown if len(shown) <= 60 else shown[:57] + '...'} is not a whole number from 1 on",
                where=where,
                fix=f"Write version: {self.version}, which this npuc writes",
            )
        if self.oldest <= stated <= self.version:
            return
        known = f"versions {self.oldest} to {self.version}" if self.oldest < self.version else ""
        remedy = self.remedy if stated < self.oldest else f"update npuc, or {self.remedy}"
        raise error(
            f"is a {self.name} of version {stated}, and this npuc reads {known or f'version {self.version}'}",
            where=where,
            fix=remedy[0].upper() + remedy[1:],
        )

    def check_json(
        self, text: bytes, where: str | None = None, error: type[NpucError] = FileFormatError
    ) -> None:
        """The same for the field `version` of a JSON text; one that is no JSON, or states none, passes.

        It is for readers whose model of the file has refused it: a later version is the reason to name first.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(data, dict) and type(data.get("version")) is int:
            self.check(data["version"], where, error)


_AGAIN = "compile the model again with this one"

NPU_FILE = FormatVersion("compiled model", 2, "`version` of `.npu.header`", oldest=2, remedy=_AGAIN)
PROGRAM_TEXT = FormatVersion("program", 1, "`top.version` of the module, 1 if absent")
DEBUG_SECTION = FormatVersion("section .npu.debug", 1, "`version` of its JSON", remedy=_AGAIN)
HOST_SECTION = FormatVersion("section .npu.host", 1, "`version` of its header", remedy=_AGAIN)
TARGET_FILE = FormatVersion("target", 1, "`version:`, 1 if absent")
QUANTIZATION_CONFIG = FormatVersion("quantization configuration", 1, "`version:`, 1 if absent")
SCHEDULE_FILE = FormatVersion("schedule", 1, "`version:`, 1 if absent")
SCHEDULE_LISTING = FormatVersion("listing of a schedule", 1, "first line", remedy=_AGAIN)
SCHEDULE_CACHE = FormatVersion("cache entry", 1, "first line; another version is passed over")
CALIBRATION_TABLE = FormatVersion("calibration table", 1, "first line, 1 if absent")
STATISTICS = FormatVersion("calibration statistics file", 1, "`version` of `meta`")
DUMP = FormatVersion("dump", 1, "`version` of `dump.json`", remedy="dump the tensors again with this one")
SAMPLE = FormatVersion("sample for a board", 1, "`version` of `sample.json`")
JOURNAL = FormatVersion("journal of an evaluation", 1, "first line", remedy="give --resume another file")

FORMATS = (
    PROGRAM_TEXT,
    NPU_FILE,
    DEBUG_SECTION,
    HOST_SECTION,
    TARGET_FILE,
    QUANTIZATION_CONFIG,
    SCHEDULE_FILE,
    SCHEDULE_LISTING,
    SCHEDULE_CACHE,
    CALIBRATION_TABLE,
    STATISTICS,
    DUMP,
    SAMPLE,
    JOURNAL,
)
