"""Target files: where they are found, what they extend, and what a hostile one meets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.errors import FileMissingError, NpucError, TargetError, UnknownTargetError
from npuc.target import available, load_target, load_with_files, search_path
from npuc.target.load import MAX_EXTENDS, PRESETS
from npuc.target.vendor_names import BOARDS, FINGERPRINTS, NEAREST, PRESET_OF, canonical
from npuc.target.yamlfile import MAX_BYTES, parse_document
from support.targets import small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the search path; the user's own is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setenv("NPUC_TARGET_PATH", str(mine))
    return mine


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_names_are_found_in_order(folder: Path, tmp_path: Path) -> None:
    assert search_path() == [folder, tmp_path / "config/npuc/targets", PRESETS]
    write(tmp_path / "config/npuc/targets/mine.yaml", "{extends: edge-4t, compute: {cores: 2}}")
    assert load_target("mine").compute.cores == 2
    write(folder / "mine.yml", "{extends: edge-4t, compute: {cores: 3}}")
    assert load_target("mine").compute.cores == 3
    assert [file.name for file in available()][-1] == "mine"
    assert not available()[-1].preset


def test_home_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("NPUC_TARGET_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert search_path() == [tmp_path / ".config/npuc/targets", PRESETS]


def test_a_path_is_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder / "deep/x.yaml", yaml.safe_dump(small()))
    assert load_target(file).name == "small"
    monkeypatch.chdir(folder / "deep")
    assert load_target("x.yaml") == load_target("./x.yaml") == load_target(Path("x.yaml"))
    with pytest.raises(UnknownTargetError):
        load_target("x")
    with pytest.raises(FileMissingError):
        load_target("y.yaml")
    with pytest.raises(FileMissingError):
        load_target(str(folder / "deep") + "/")


def test_a_file_without_a_name_has_that_of_the_file(folder: Path) -> None:
    write(folder / "my-npu.yaml", "extends: edge-1t")
    assert load_target("my-npu").name == "my-npu"
    assert load_target("my-npu").description == ""


@pytest.mark.parametrize("name", ["edge4t", "", "..", "a b", "x" * 100, "../../etc/passwd\n"])
def test_an_unknown_name(folder: Path, name: str) -> None:
    with pytest.raises((UnknownTargetError, FileMissingError)) as caught:
        load_target(name)
    if name == "edge4t":
        assert "did you mean 'edge-4t'?" in str(caught.value)


def test_extends_merges_field_by_field(folder: Path) -> None:
    base, heir = load_target("edge-4t"), None
    write(
        folder / "heir.yaml",
        """
        extends: edge-4t
        memory: {local: {size: 1MiB}, shared: {size: 1MiB, bandwidth: 8B/cycle}}
        arithmetic: {weights: {formats: {i4: null}, granularity: [per_tensor]}}
        """,
    )
    heir = load_target("heir")
    assert heir.memory.local.size == 1 << 20 and heir.memory.local.banks == base.memory.local.banks
    assert heir.memory.shared is not None and heir.compute == base.compute
    assert "i4" not in heir.arithmetic.weights.formats and "i8" in heir.arithmetic.weights.formats
    assert heir.arithmetic.weights.granularity == ("per_tensor",)
    write(folder / "grandchild.yaml", "{extends: heir, memory: {shared: null}}")
    loaded = load_with_files("grandchild")
    assert loaded.target.memory.shared is None
    assert [file.name for file in loaded.files] == ["grandchild", "heir", "edge-4t"]


def test_extends_can_name_a_file_beside_it(folder: Path) -> None:
    write(folder / "sub/base.yaml", yaml.safe_dump(small()))
    write(folder / "a.yaml", "{extends: sub/base.yaml, compute: {cores: 7}}")
    assert load_target("a").compute.cores == 7


@pytest.mark.parametrize("path", ["/etc/passwd.yaml", "../x.yaml", "sub/../../x.yaml"])
def test_extends_stays_in_the_folder(folder: Path, path: str) -> None:
    write(folder / "a.yaml", f"extends: {path}")
    with pytest.raises(TargetError, match="outside the folder"):
        load_target("a")


def test_a_file_may_extend_the_preset_that_it_hides(folder: Path) -> None:
    write(folder / "edge-4t.yaml", "{extends: edge-4t, compute: {cores: 2}}")
    assert load_target("edge-4t").compute.cores == 2
    # A preset that extends the hidden one is still what it was.
    assert load_target("server-32t").compute.table_units == 256
    write(folder / "edge-4t.yaml", "{extends: edge-4t, compute: {clock: 2GHz}}")
    assert load_target("edge-1t").compute.clock == 10**9


def test_a_file_elsewhere_may_have_the_name_of_what_it_extends(folder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "elsewhere/edge-4t.yaml", "{extends: edge-4t, compute: {cores: 2}}")
    assert load_target(file).compute.cores == 2


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_circle_is_found(folder: Path, length: int) -> None:
    for index in range(length):
        write(folder / f"t{index}.yaml", f"extends: ./t{(index + 1) % length}.yaml")
    with pytest.raises(TargetError, match=r"in a circle: .*t0"):
        load_target("t0")


def test_too_long_a_chain(folder: Path) -> None:
    for index in range(MAX_EXTENDS + 1):
        write(folder / f"t{index}.yaml", f"extends: t{index + 1}")
    write(folder / f"t{MAX_EXTENDS + 1}.yaml", "extends: edge-4t")
    with pytest.raises(TargetError, match="extends more than 8"):
        load_target("t0")
    assert load_target(f"t{MAX_EXTENDS - 4}").name == f"t{MAX_EXTENDS - 4}"


@pytest.mark.parametrize(("base", "kind"), [("nothing", UnknownTargetError), ("no.yaml", FileMissingError)])
def test_a_base_that_is_not_there_is_named_with_its_line(
    folder: Path, base: str, kind: type[NpucError]
) -> None:
    file = write(folder / "a.yaml", f"name: a\nextends: {base}\n")
    with pytest.raises(kind, match="extends: ") as caught:
        load_target("a")
    assert caught.value.where == f"{file}:2"


def test_extends_is_text(folder: Path) -> None:
    write(folder / "a.yaml", "extends: [edge-4t]")
    with pytest.raises(TargetError, match="is not the name of a target"):
        load_target("a")


def test_a_problem_has_the_line_of_the_file_that_wrote_it(folder: Path) -> None:
    base = write(folder / "base.yaml", "extends: edge-4t\ncompute:\n  cores: 1\n  clock: 7\n")
    heir = write(folder / "heir.yaml", "extends: base\nmemory:\n  local:\n    size: big\n")
    with pytest.raises(TargetError) as caught:
        load_target("heir")
    assert [str(problem.origin) for problem in caught.value.problems] == [f"{base}:4", f"{heir}:4"]


def test_values_are_what_they_look_like() -> None:
    text = "{a: yes, b: 010, c: '1', d: 1.5, e: null, f: true, g: 1:30, h: 0x10, i: 1_0, j: -3, k: 1e3, l: '', m: }"
    data = parse_document(text, "t").data
    assert data == {
        "a": "yes",
        "b": 10,
        "c": "1",
        "d": 1.5,
        "e": None,
        "f": True,
        "g": "1:30",
        "h": "0x10",
        "i": "1_0",
        "j": -3,
        "k": "1e3",
        "l": "",
        "m": None,
    }


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, "anchors"),
        ("a: &a {b: *a}", "anchors"),
        ("<<: *x", "anchors"),
        ("a: !!python/object/apply:os.system ['true']", "the tag"),
        ("a: !!binary aGk=", "the tag"),
        ("a: !x 1", "the tag"),
        ("a: 1\na: 2", "'a' is there twice; it was first given in line 1"),
        ("a: {b: 1, b: 2}", "'b' is there twice"),
        ("a: 1\n---\nb: 2", "second one begins"),
        ("[" * 100_000, "nests deeper"),
        ("a: " + "{b: " * 1000, "nests deeper"),
        ("- " * 1000 + "x", "nests deeper"),
        ("[a, b]", "is not a group of fields"),
        ("just text", "is not a group of fields"),
        ("", "is not a group of fields"),
        ("a: [1, 2", "is not YAML"),
        ("a: 'x", "is not YAML"),
        ("a:\n\t- b", "is not YAML"),
        ("a: \x01", "is not YAML"),
        ("? [a]\n: b", "has to be plain text"),
        ("[" + "1," * 30_000 + "]", "more than 20000 values"),
        ("%YAML 9.9\n---\na: 1", "is not YAML"),
    ],
)
def test_hostile_text_is_refused_quickly(text: str, words: str) -> None:
    begin = time.process_time()
    with pytest.raises(TargetError, match=words) as caught:
        parse_document(text, "t.yaml")
    assert (caught.value.where or "").startswith("t.yaml")
    assert time.process_time() - begin < 10


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    file = write(tmp_path / "big.yaml", "#" * (MAX_BYTES + 1))
    with pytest.raises(TargetError, match="256 KiB"):
        load_target(file)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "raw.yaml"
    file.write_bytes(b"a: 1\nb: \xff\xfe\n")
    with pytest.raises(TargetError, match="not UTF-8") as caught:
        load_target(file)
    assert caught.value.where == f"{file}:2"


def test_a_folder_and_an_unreadable_entry_on_the_path(folder: Path) -> None:
    (folder / "dir.yaml").mkdir()
    write(folder / "not a name.yaml", "{}")
    (folder / "broken.yaml").symlink_to(folder / "nowhere")
    assert all(file.preset for file in available())
    with pytest.raises(UnknownTargetError):
        load_target("dir")


PRESET_TEXT = (PRESETS / "edge-4t.yaml").read_text()


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = PRESET_TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 8))
        insert = data.draw(st.text(st.sampled_from("{}[]:,-&*!|>'\"%@#\n\t 0159aeix/\x00é"), max_size=6))
        text = text[:at] + insert + text[at + length :]
    file = tmp_path_factory.mktemp("damaged") / "t.yaml"
    file.write_text(text)
    try:
        load_target(file)
    except NpucError as error:
        assert error.exit_status == 2


def test_a_vendors_name_stands_for_its_preset(tmp_path: Path) -> None:
    target = load_target("bm1684x-like")
    (tmp_path / "arch.json").write_text('{"target": "BM1684X"}')
    (tmp_path / "print.json").write_text(f'{{"fingerprint": "{target.fingerprint_text}"}}')
    for name in ("BM1684X", target.fingerprint_text, tmp_path / "arch.json", tmp_path / "print.json"):
        assert load_target(name) == target, name


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("aries", "aries-like"),
        ("DPUCZDX8G_ISA1_B4096", "dpuczdx8g-b4096-like"),
        ("dpucvdx8g-isa3-c32b3-sp", "dpucvdx8g-c32b3-like"),
        ("0x0101000016010407", "dpuczdx8g-b4096-like"),
        ("/opt/vitis_ai/compiler/arch/DPUCAHX8H/U50/arch.json", "dpucahx8h-dwc-like"),
        ("X2_1204MP3", "zhouyi-x2mp3-like"),
        ("VIPNANOQI_PID0XE8", "vipnano-e8-like"),
        ("vipnanoqi_pid0x88", "vipnano-like"),
    ],
)
def test_names_of_all_vendors_are_targets(name: str, preset: str) -> None:
    assert load_target(name).name == preset


def test_every_name_of_a_vendor_leads_to_a_preset_that_exists() -> None:
    presets = {file.name for file in available() if file.preset}
    assert {*PRESET_OF.values(), *NEAREST.values()} <= presets
    assert {*FINGERPRINTS.values(), *BOARDS.values()} <= {*PRESET_OF, *NEAREST}
    assert all(name == canonical(name) for name in (*PRESET_OF, *NEAREST))
    assert not {name.lower() for name in (*PRESET_OF, *NEAREST)} & presets - {"bm1684x"}


def test_a_users_file_goes_before_a_vendors_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aries.yaml").write_text("extends: edge-1t\n")
    monkeypatch.setenv("NPUC_TARGET_PATH", str(tmp_path))
    assert load_target("aries").compute == load_target("edge-1t").compute


def test_a_misspelt_name_of_a_vendor_is_met_with_those_that_there_are() -> None:
    with pytest.raises(
        UnknownTargetError, match="no target 'DPUCZDX8G_ISA1_B409'; did you mean 'DPUCZDX8G_ISA1_B4096'"
    ) as caught:
        load_target("DPUCZDX8G_ISA1_B409")
    assert "DPUCAHX8H_ISA2_DWC" in str(caught.value.fix) and "X2_1204" not in str(caught.value.fix)
    with pytest.raises(UnknownTargetError, match="figures of 'Z2_0901' are not published"):
        load_target("Z2_0901")
    with pytest.raises(UnknownTargetError, match="no board 'ZCU999'"):
        load_target("/opt/vitis_ai/compiler/arch/DPUCZDX8G/ZCU999/arch.json")


def test_a_chip_that_nobody_describes_is_refused_with_the_nearest_preset() -> None:
    with pytest.raises(UnknownTargetError, match="'CV183X' are not published") as caught:
        load_target("CV183X")
    assert "bm1684x-like" in str(caught.value.fix)
    with pytest.raises(UnknownTargetError, match="no target has the fingerprint 0x0000000000000123"):
        load_target("0x123")


@pytest.mark.parametrize("text", ["{", "[]", '{"target": 3}', "{}", '{"target": "arch.json"}'])
def test_a_description_that_states_no_machine(tmp_path: Path, text: str) -> None:
    (tmp_path / "arch.json").write_text(text)
    with pytest.raises(TargetError):
        load_target(tmp_path / "arch.json")
