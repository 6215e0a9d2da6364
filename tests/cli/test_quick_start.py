"""The start of the command: methods that come when they are called are those that `dataclass` makes."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from npuc.cli import late_methods
from npuc.cli.commands import program
from npuc.cli.once import _plain_values, each_once
from npuc.cli.startup import quick_start

DIGITS = Path(__file__).parents[2] / "examples" / "digits.onnx"


def _classes() -> tuple[Any, Any]:
    @dataclasses.dataclass(frozen=True, order=True)
    class Base:
        """A pair."""

        left: int
        right: list[int] = dataclasses.field(default_factory=list, hash=False)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Derived(Base):
        """A pair with a name."""

        name: str = "none"

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.upper())

    return Base, Derived


def _behaviour(base: Any, derived: Any) -> list[Any]:
    """What can be seen of the classes."""
    seen: list[Any] = []
    for one, other in (
        (base(1, [2]), base(left=1, right=[2])),
        (derived(1, name="a"), derived(1, [], "a")),
        (base(1), derived(1)),
    ):
        seen += [repr(one), one == other, one != other, dataclasses.asdict(one)]
        seen += [dataclasses.replace(one, left=7), hash(dataclasses.replace(one, right=()))]
    seen += [
        base(1) < base(2),
        sorted([base(3), base(1)]),
        [field.name for field in dataclasses.fields(derived)],
    ]
    for wrong in (lambda: base(), lambda: base(1, 2, 3), lambda: derived(1, other=2)):
        with pytest.raises(TypeError) as caught:
            wrong()
        seen.append(str(caught.value))
    for change in (lambda: setattr(base(1), "left", 2), lambda: delattr(derived(1), "name")):
        with pytest.raises(dataclasses.FrozenInstanceError) as frozen:
            change()
        seen.append(str(frozen.value))
    return [str(value) for value in seen]


@pytest.fixture
def as_of_npuc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of this file are made as those of npuc are."""
    monkeypatch.setattr(late_methods, "_PACKAGES", (__name__.partition(".")[0],))


@pytest.mark.usefixtures("as_of_npuc")
def test_methods_that_come_when_called_are_those_of_the_library() -> None:
    with quick_start():
        late = _classes()
    assert _behaviour(*late) == _behaviour(*_classes())


@pytest.mark.usefixtures("as_of_npuc")
@pytest.mark.parametrize("often", [0, 1, 1000])
def test_stand_ins_do_what_the_methods_do(often: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_methods, "_OFTEN", often)
    with quick_start():
        late = _behaviour(*_classes()), _odd_behaviour()
    assert late == (_behaviour(*_classes()), _odd_behaviour())


def _odd_behaviour() -> list[Any]:
    """What can be seen of classes whose constructors do more than to assign what they are given."""

    @dataclasses.dataclass(slots=True)
    class Slots:
        made: int = dataclasses.field(init=False, default=3)

    @dataclasses.dataclass
    class Odd:
        self: int
        shared: ClassVar[int] = 7
        scale: dataclasses.InitVar[int] = 2
        _: dataclasses.KW_ONLY
        named: list[int] = dataclasses.field(default_factory=list)
        later: list[int] = dataclasses.field(init=False, default_factory=list)

        def __post_init__(self, scale: int) -> None:
            self.later.append(scale)

    @dataclasses.dataclass(kw_only=True)
    class Named:
        first: int
        second: int = 2
        later: list[int] = dataclasses.field(init=False, default_factory=list)
        compared: int = dataclasses.field(default=0, compare=False)

    class Finished(Named):
        def __post_init__(self) -> None:
            raise AssertionError("the constructor of the class above knows nothing of this")

    seen: list[Any] = [Slots(), Odd(1), Odd(1, 5, named=[4]), Named(first=1), Finished(first=2, second=3)]
    seen += [Named(first=1) == Named(first=1, compared=5), Named(first=1) == Finished(first=1), Odd(1).later]
    for wrong in (
        lambda: Named(1),
        lambda: Named(first=1, later=[]),
        lambda: Odd(1, self=2),
        lambda: Named(),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        seen.append(caught.value)
    return [str(value) for value in seen]


@pytest.mark.usefixtures("as_of_npuc")
def test_methods_behind_decorators_do_what_they_did() -> None:
    with quick_start():
        base, _ = _classes()
    inner = {name: base.__dict__[name] for name in ("__init__", "__eq__", "__hash__")}
    for name, method in inner.items():
        type.__setattr__(base, name, lambda self, *values, method=method: method(self, *values))
    for _ in range(late_methods._OFTEN + 2):
        assert base(1) == base(1) != base(2)
        assert hash(base(1)) == hash(base(1))


@pytest.mark.usefixtures("as_of_npuc")
def test_a_method_is_compiled_once_it_is_called_often() -> None:
    with quick_start():
        base, _ = _classes()
    before = base.__dict__["__init__"]
    for _ in range(late_methods._OFTEN):
        base(1)
    assert base.__dict__["__init__"] is before
    base(1)
    after = base.__dict__["__init__"]
    base(2)
    assert base.__dict__["__init__"] is after is not before
    assert "__eq__" in base.__dict__ and base.__dict__["__eq__"].__code__.co_filename != "<string>"


def test_metadata_of_packages_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys; from npuc.cli.startup import quick_start\n"
        "with quick_start():\n"
        "    from importlib.metadata import entry_points\n"
        "    assert 'email' not in sys.modules\n"
        "    assert entry_points(group='no such group') == () or not entry_points(group='no such group')\n"
        "    import importlib.metadata\n"
        "    print(importlib.metadata.version('npuc'), 'email' in sys.modules, len(sys.meta_path))\n"
        "print(len(sys.meta_path))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, loaded, during, after = done.stdout.split()
    assert version and loaded == "True" and int(during) == int(after) + 1


def test_classes_of_other_packages_have_their_signatures() -> None:
    with quick_start():
        base, _ = _classes()
    assert list(inspect.signature(base).parameters) == ["left", "right"]


def test_what_was_changed_is_put_back() -> None:
    before = gc.get_threshold(), dataclasses._create_fn  # type: ignore[attr-defined]
    with quick_start():
        assert gc.get_threshold() != before[0]
    assert (gc.get_threshold(), dataclasses._create_fn) == before  # type: ignore[attr-defined]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(name: str, text: str) -> None:
        """As it may be written one day."""

    monkeypatch.setattr(dataclasses, "_create_fn", other)
    with quick_start():
        assert dataclasses._create_fn is other  # type: ignore[attr-defined]


def test_a_command_line_loads_its_command_only() -> None:
    code = (
        "import sys; from npuc.cli.app import run_command; run_command(['show', '--help']);"
        "sys.exit(', '.join(name for name in sys.modules if name in ('npuc.cli.compile_', 'npuc.cli.train')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "List the layers" in done.stdout and done.stderr.strip() == ""


def test_a_single_command_has_the_options_that_it_has_in_the_whole_program() -> None:
    whole: Any = typer.main.get_command(program())
    single: Any = typer.main.get_command(program("compile"))
    assert list(single.commands) == ["compile"] and len(whole.commands) > 20
    options = [[one.opts for one in command.commands["compile"].params] for command in (whole, single)]
    assert options[0] == options[1]
    assert program("no-such-command") is program()


def test_a_quiet_compilation_does_not_work_out_what_it_would_print(tmp_path: Path) -> None:
    code = (
        "import sys; from npuc.cli.app import run_command\n"
        f"words = ['compile', {str(DIGITS)!r}, '--target', 'edge-1t', '--random', '-q', '-o', {str(tmp_path / 'a.npu')!r}]\n"
        "print(run_command(words), [name for name in sys.modules if name.startswith('npuc.profile') or name == 'html'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 []" and (tmp_path / "a.npu").stat().st_size


def test_plain_text_and_paths_need_no_validators(tmp_path: Path) -> None:
    """And what typer is asked to look at, it looks at: a file that is there and cannot be read."""
    app = typer.Typer()

    @app.command()
    def command(
        text: str,
        there: Annotated[Path, typer.Option(exists=True)],
        path: Path = Path(),
        number: int = 1,
    ) -> None:
        print(text, there, path, number)

    each_once(app)
    single: Any = typer.main.get_command(app)
    given = {"text": "a", "there": "b", "path": str(tmp_path), "number": "3"}
    assert _plain_values(single.params, given) == {"text": "a", "path": tmp_path}
    result = CliRunner().invoke(app, ["a", "--there", str(tmp_path), "--path", "no/file", "--number", "3"])
    assert result.output.split() == ["a", str(tmp_path), "no/file", "3"]
    assert CliRunner().invoke(app, ["a", "--there", "no/file"]).exit_code == 2
