"""`npuc compat`: scripts and packages where the user wants them, and command lines as the vendors' tools read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npuc.cli.app import run_command
from npuc.compat.arguments import VendorParser, keyword
from npuc.compat.install import install
from npuc.compat.names import NameMap
from npuc.compat.registry import command_named, vendor_named, vendors
from npuc.compat.running import run_vendor_command
from npuc.compat.vendor import Vendor
from npuc.errors import OutputError, UsageError

EXAMPLE = Vendor(
    "example",
    "Example",
    "migrate-example.md",
    {"tool.py": "npuc.compat.tpumlir.npz_tool:main"},
    {
        "outer.inner": "npuc.compat.names",
        "outer.inner.deep": "npuc.compat.vendor",
        "alone": "npuc.compat.names",
    },
    error_identifiers={"E901": "EXAMPLE_BAD_OPTION"},
)


def test_scripts_run_and_packages_import(tmp_path: Path) -> None:
    done = install(EXAMPLE, tmp_path)
    assert done.scripts == tmp_path / "bin" and os.access(tmp_path / "bin" / "tool.py", os.X_OK)
    program = "import alone, outer.inner as i, outer.inner.deep as d; print(i.NameMap, d.Vendor, alone.NameMap is i.NameMap)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(done.packages), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert "NameMap" in told.stdout and "Vendor" in told.stdout and "True" in told.stdout, told.stderr


def test_a_package_of_others_is_the_installed_one_with_what_is_added(tmp_path: Path) -> None:
    (tmp_path / "site" / "other" / "part").mkdir(parents=True)
    (tmp_path / "site" / "other" / "__init__.py").write_text(
        "from other.part import VALUE\nraise_it = False\n"
    )
    (tmp_path / "site" / "other" / "part" / "__init__.py").write_text("VALUE = 7\n")
    (tmp_path / "site" / "adds.py").write_text("def extend(module): module.added = module.VALUE + 1\n")
    done = install(Vendor("x", "X", "", {}, {}, {"other": "adds", "absent": "adds"}), tmp_path / "tools")
    program = """
import other, other.part
print(other.added, other.part.VALUE, other.__file__)
try:
    import absent
except ModuleNotFoundError as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(done.packages), str(tmp_path / "site"), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert told.stdout.startswith(f"8 7 {tmp_path}/site/other/__init__.py"), told.stderr
    assert "No module named 'absent'" in told.stdout


def test_a_real_script_leaves_with_the_status_of_its_command(tmp_path: Path) -> None:
    done = install(vendor_named("tpumlir"), tmp_path)
    assert done.scripts is not None
    told = subprocess.run([done.scripts / "npz_tool.py", "dump", "no.npz"], capture_output=True, text=True)
    assert told.returncode == 2 and "error[E101]" in told.stderr and "no.npz" in told.stderr


def test_it_is_installed_again_over_itself_and_never_over_other_files(tmp_path: Path) -> None:
    install(EXAMPLE, tmp_path)
    install(EXAMPLE, tmp_path)
    (tmp_path / "python" / "alone.py").write_text("mine = 1\n")
    (tmp_path / "bin" / "tool.py").unlink()
    with pytest.raises(OutputError, match="nothing was written"):
        install(EXAMPLE, tmp_path)
    assert (tmp_path / "python" / "alone.py").read_text() == "mine = 1\n"
    assert not (tmp_path / "bin" / "tool.py").exists()


def test_the_command_prints_what_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compat", "install", "TPU-MLIR", str(tmp_path / "new")]) == 0
    assert f'export PATH="{tmp_path}/new/bin' in capsys.readouterr().out
    assert run_command(["compat", "list"]) == 0
    assert "npz_tool.py" in capsys.readouterr().out
    assert run_command(["compat", "run", "tpumlr", "npz_tool.py"]) == 2
    assert "Did you mean 'tpumlir'" in capsys.readouterr().err
    assert run_command(["compat", "run", "tpumlir", "npz_tol"]) == 2
    assert "Did you mean 'npz_tool.py'" in capsys.readouterr().err


def test_every_command_and_module_of_a_vendor_is_there() -> None:
    from importlib import import_module

    for vendor in vendors():
        for name, place in vendor.commands.items():
            module, _, function = place.partition(":")
            assert callable(getattr(import_module(module), function)), name
        for adapter in filter(None, (*vendor.modules.values(), *vendor.extensions.values())):
            import_module(adapter)
        assert (Path(__file__).parents[2] / "docs" / vendor.page).is_file()


def test_a_suffix_may_be_left_out() -> None:
    assert command_named(EXAMPLE, "tool") == "tool.py"


def test_an_error_has_the_identifier_of_the_vendor() -> None:
    vendor = Vendor("x", "X", "", EXAMPLE.commands, error_identifiers={UsageError.code: "X_BAD_OPTION"})
    with pytest.raises(UsageError, match=r"X_BAD_OPTION: npz_tool\.py has no function"):
        run_vendor_command(vendor, "tool.py", ["frobnicate"])


def parser() -> VendorParser:
    own = VendorParser("tool.py", "Do it.")
    own.add("--quantize", type=keyword("INT8", "F32"))
    own.add("--dataset")
    own.add_ignored("--merge_weight", "it is done anyway")
    own.add_refused("--dynamic", "shapes are static", unless="False")
    return own


def test_options_as_the_documents_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    options = parser().parse(["-dataset", "a", "--quantize=int8"])
    assert (options.dataset, options.quantize) == ("a", "INT8")
    assert capsys.readouterr().err == ""


def test_what_means_nothing_here_is_accepted_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser().parse(["--merge_weight", "--dynamic", "False"])
    assert (
        capsys.readouterr().err == "warning: tool.py: --merge_weight has no effect here: it is done anyway\n"
    )


def test_what_would_change_the_result_is_refused() -> None:
    with pytest.raises(UsageError, match="--dynamic is not supported: shapes are static"):
        parser().parse(["--dynamic"])


def test_unknown_options_warn_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser().parse(["--datset", "x"])
    assert "does not know --datset: passed over (did you mean --dataset?)" in capsys.readouterr().err
    monkeypatch.setenv("NPUC_COMPAT_STRICT", "1")
    with pytest.raises(UsageError, match="does not know --datset"):
        parser().parse(["--datset", "x"])


def test_a_wrong_value_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="'INT9' is none of INT8, F32"):
        parser().parse(["--quantize", "INT9"])


def test_names_both_ways() -> None:
    names = NameMap({"a": "a_Conv", "x": "x"})
    assert names.outward({"a": 1, "x": 2, "other": 3}) == {"a_Conv": 1, "x": 2, "other": 3}
    assert names.inward({"a_Conv": 1, "x": 2}) == names.inward({"a": 1, "x": 2}) == {"a": 1, "x": 2}


def test_the_command_line_starts_without_the_adapters() -> None:
    program = """
import sys
from npuc.cli.app import run_command
run_command(["--version"])
print(sorted(name for name in sys.modules if name.startswith("npuc.compat")))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout.splitlines()[-1] == "[]", told.stdout + told.stderr
