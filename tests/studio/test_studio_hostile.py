"""A project that somebody else packed: links that lead out of it, names that mean something to a shell, numbers that are none."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from npuc.errors import UsageError
from npuc.studio.actions import command_of
from npuc.studio.jobs import Job
from npuc.studio.numbers import Comparison
from npuc.studio.project import Project
from npuc.studio.serving import _has_screen
from npuc.studio.studio import Sample, Studio
from support.studio_server import Client


def moved_out(file: Path) -> Path:
    """Replace a file of a project by a link to it outside."""
    outside = file.parent.parent / f"outside-{file.name}"
    file.rename(outside)
    file.symlink_to(outside)
    return outside


def test_weights_outside_of_the_project_are_not_read(project_folder: Path):
    project = Project(project_folder)
    assert project.model("digits.mlir")
    moved_out(project_folder / "digits.safetensors")
    for question in (
        lambda: Studio(project).graph("digits.mlir"),
        lambda: Studio(project).placement("digits.mlir", "edge-4t"),
        lambda: command_of(project, {"action": "compile", "model": "digits.mlir", "output": "x.npu"}),
    ):
        with pytest.raises(UsageError, match=r"digits\.safetensors', a link that leads out"):
            question()
    assert Studio(project).graph("digits.onnx").nodes


def test_what_a_job_writes_beside_its_output_stays_in_the_project(project_folder: Path):
    request = {"action": "quantize", "model": "digits.onnx", "output": "new.mlir"}
    assert command_of(Project(project_folder), request)
    for ending in (".safetensors", ".quant.yaml"):
        link = project_folder / f"new{ending}"
        link.symlink_to(project_folder.parent / "victim")
        with pytest.raises(UsageError, match="not a name of a file"):
            command_of(Project(project_folder), request)
        link.unlink()


def test_a_sample_is_data_and_no_list_of_other_files(project_folder: Path):
    (project_folder / "list.txt").write_text("/etc/hostname\n")
    project = Project(project_folder)
    with pytest.raises(UsageError, match="no image or tensor file"):
        Studio(project).compare("digits.onnx", "digits.mlir", Sample("list.txt"))
    for name in ("list.txt", "."):
        with pytest.raises(UsageError):
            command_of(
                project, {"action": "quantize", "model": "digits.onnx", "output": "x.mlir", "data": name}
            )
    # The model says how its inputs are called: one called './in' would make a path of what is behind the '='.
    (project_folder / "in=").mkdir()
    (project_folder / "in=" / "x.npz").write_bytes(b"")
    with pytest.raises(UsageError, match="INPUT=PATH"):
        command_of(
            project, {"action": "quantize", "model": "digits.onnx", "output": "x.mlir", "data": "in=/x.npz"}
        )


def test_a_target_is_a_name(client, project_folder: Path):
    (project_folder / "mine.yaml").write_text("extends: /etc/passwd\n")
    (project_folder / "mine.json").write_text("{}")
    client.enter()
    for name in ("mine.yaml", "mine.json", "./mine.yaml", "edge-4t.yaml"):
        assert client.refusal(f"/api/placement?file=digits.onnx&target={name}")[0] == 400


def test_links_in_a_circle_and_long_names_are_no_files(client, project_folder: Path):
    (project_folder / "round.onnx").symlink_to("round.onnx")
    (project_folder / "again").symlink_to(".")
    os.mkfifo(project_folder / "pipe.onnx")
    client.enter()
    names = [file["name"] for file in client.json("/api/project")["files"]]
    assert "digits.onnx" in names and "round.onnx" not in names and "pipe.onnx" not in names
    for name in ("round.onnx", "pipe.onnx", "x" * 300, "again", "digits_samples.npz"):
        assert client.refusal(f"/api/graph?file={name}")[0] in (400, 404)
        assert client.refusal("/api/text", "PUT", {"file": name, "text": "", "digest": ""})[0] == 400


def test_texts_and_numbers_that_are_none_are_refused(client):
    client.enter()
    assert client.refusal("/api/text", "PUT", {"file": "a.yaml", "text": "\ud800", "digest": ""})[0] == 400
    path = "/api/tensor?reference=digits.onnx&other=digits.mlir&name=x&channel=%C2%B2"
    assert client.refusal(path)[0] == 400
    body = {"action": "compile", "model": "digits.onnx", "output": "x.npu", "target": "edge-4t"}
    for layer in ("a\0b", "\ud800", ""):
        assert client.refusal("/api/jobs", "POST", body | {"devices": {layer: "cpu"}})[0] == 400


def test_a_body_without_a_length_is_cut_off(client, project_folder: Path):
    client.enter()
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    headers = {"Cookie": client.cookie, "Origin": f"http://127.0.0.1:{client.port}"}
    parts = iter([bytes(1 << 19)] * 4)
    connection.request("POST", "/api/upload?name=a.png", parts, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert not (project_folder / "uploads").exists()


def test_cookies_of_other_servers_are_not_in_the_way(client):
    client.enter()
    own, client.cookie = client.cookie, ""
    cookies = f'settings={{"a": [1, 2]}}; {own}; _xsrf=2|a|b'
    assert client.send("/api/project", headers={"Cookie": cookies})[0] == 200
    # The printed address, opened again in the same browser, leads to the page.
    assert client.send(f"/?token={client.token}", headers={"Cookie": cookies})[0] == 303
    assert client.send(f"/?token={client.token}")[0] == 403


def test_a_command_can_be_copied_into_a_shell():
    job = Job(1, "", ("compile", "./$(reboot) a.onnx", "--json"), ())
    assert job.as_json()["command"] == "npuc compile './$(reboot) a.onnx' --json"


def test_an_error_that_is_no_number_is_told_as_json():
    figures = SimpleNamespace(cosine=float("nan"), sqnr=float("-inf"), max_error=float("inf"))
    entry = SimpleNamespace(
        name="x", layer="x", kind="add", type="i8", accumulated=figures, isolated=None,
        saturation=float("nan"), range_use=0.5,
    )  # fmt: skip
    row = Comparison._row(entry)  # type: ignore[arg-type]
    assert json.dumps(row, allow_nan=False) and row["cosine"] == "nan"


def test_a_job_ends_with_a_server_that_is_killed(project_folder: Path):
    # The command says nothing for a minute: it does not notice by itself that nobody listens.
    script = (
        "import sys, time; from pathlib import Path; from npuc.studio import jobs;"
        "jobs._PROGRAM = jobs._PROGRAM.replace('from npuc.cli import main', 'main = lambda: time.sleep(60)');"
        "started = jobs.Jobs(Path(sys.argv[1])); started.start('', []);"
        "print(started._processes[1].pid, flush=True); time.sleep(60)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", script, str(project_folder)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    status = Path(f"/proc/{int(server.stdout.readline())}/stat")
    server.kill()
    server.communicate()
    deadline = time.monotonic() + 20
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the job goes on without a server"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_server_that_is_killed_loses_no_file(project_folder: Path):
    """A configuration is saved, a job replaces a result, and the server is killed in the midst of it."""
    (project_folder / "kept.mlir").write_text("as it was")
    program = str(Path(sys.executable).with_name("npuc"))
    server = subprocess.Popen(
        [program, "studio", str(project_folder), "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    address = next(line for line in server.stdout if line.startswith("open ")).split()[1]
    port, token = int(address.split(":")[2].split("/")[0]), address.split("token=")[1].strip()
    client = Client(port, token)
    client.enter()
    client.json("/api/text", "PUT", {"file": "c.yaml", "text": "layers:\n  stem/relu: int16\n", "digest": ""})
    body = {"action": "quantize", "model": "digits.onnx", "output": "kept.mlir", "ladder": "all"}
    client.json("/api/jobs", "POST", body | {"data": "digits_samples.npz", "config": "c.yaml"})
    time.sleep(1.5)
    server.kill()
    server.wait()
    time.sleep(1)
    assert (project_folder / "c.yaml").read_text() == "layers:\n  stem/relu: int16\n"
    assert (project_folder / "kept.mlir").read_text() == "as it was"
    names = {file.name for file in Project(project_folder).files()}
    assert names == {"c.yaml", "kept.mlir", "digits.mlir", "digits.npu", "digits.onnx", "digits_samples.npz"}


def test_a_browser_is_opened_where_there_is_a_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert not _has_screen({"SSH_CONNECTION": "x", "DISPLAY": ""}) and _has_screen({"WAYLAND_DISPLAY": "w"})
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _has_screen({}) and not _has_screen({"SSH_CONNECTION": "x"})
