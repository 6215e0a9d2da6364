"""YAML of files that are not trusted, and the files that are read with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from npuc import plain_yaml
from npuc.calib.recipe import load_recipe
from npuc.errors import NpucError
from npuc.plain_yaml import load_yaml
from npuc.quant.config import QuantizationConfig
from npuc.schedule.schedule_file import ScheduleFile

BAD = {
    "deep": ("[" * 50_000, "nested more than"),
    "deep maps": ("a: {" * 2000, "nested more than"),
    "an alias": ("a: &x [1]\nb: *x\n", "aliases are not allowed"),
    "of itself": ("&a [*a]", "aliases are not allowed"),
    "a long number": ("a: " + "9" * 50_000, "a number of 50000 digits"),
    "a long time": ("a: " + ":".join(["59"] * 20_000), "a number of"),
    "a long real": ("a: " + "9" * 5000 + ".5", "a number of"),
    "twice": ("a: 1\nb: 2\na: 3\n", "'a' is there twice, in line 3"),
    "no date": ("a: 2020-99-99\n", "month must be in"),
    "code": ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused(name: str) -> None:
    text, words = BAD[name]
    with pytest.raises(yaml.YAMLError, match=words):
        load_yaml(text)


def test_a_number_is_short_whatever_its_tag_is_called() -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        load_yaml("!<tag:yaml.org,2002:int:plain> " + ":".join(["59"] * 2000))


def test_entries_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_yaml, "_MAX_ENTRIES", 7)
    assert load_yaml("- 1\n" * 6) == [1] * 6
    with pytest.raises(yaml.YAMLError, match="more than 7 entries"):
        load_yaml("- 1\n" * 7)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(b"\xff\xfe\x00")


def test_plain_files_are_read() -> None:
    found = load_yaml("a: [1, 0x1F, -2.5e+3, .inf, x, null, true]\nb: {c: {d: []}}\n")
    assert found == {"a": [1, 31, -2500.0, float("inf"), "x", None, True], "b": {"c": {"d": []}}}


@pytest.mark.parametrize("load", [QuantizationConfig.load, ScheduleFile.load, load_recipe])
@pytest.mark.parametrize("name", ["deep", "a long number", "no date", "twice"])
def test_files_say_it_in_one_paragraph(tmp_path: Path, load: Callable[[Path], Any], name: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(BAD[name][0])
    with pytest.raises(NpucError, match="is not YAML") as caught:
        load(path)
    assert str(path) in str(caught.value) and caught.value.exit_status == 2
    assert len(caught.value.paragraph()) < 600 and "\n" not in caught.value.paragraph()
