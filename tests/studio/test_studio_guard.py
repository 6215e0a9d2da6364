"""Who may ask the studio, and what they can reach: nothing outside of the project, nobody but who has the address."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npuc.errors import UsageError
from npuc.studio.project import Project

HOSTILE = (
    "../secret.onnx", "..%2fsecret.onnx", "a/../../secret.onnx", "/etc/passwd", "", ".", "..", "a//b", "./a", ".hidden.onnx",
    "link.onnx", "folder/../../x", "a\\..\\b", "x" * 2000, "a\nb", "sub/.git/config",
)  # fmt: skip


def test_nobody_enters_without_the_token(client):
    for path in ("/", "/api/project", "/static/studio.js", "/?token=wrong", "/?token="):
        assert client.send(path)[0] == 403
    client.cookie = "npuc-studio=guessed"
    assert client.send("/api/project")[0] == 403


def test_the_token_works_once_and_the_cookie_is_kept_from_scripts_and_other_sites(client):
    status, _, headers = client.send(f"/?token={client.token}")
    assert status == 303 and headers["location"] == "/"
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
    assert client.send(f"/?token={client.token}")[0] == 403
    client.cookie = headers["set-cookie"].partition(";")[0]
    assert client.json("/api/project")["files"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil", ""]
)
def test_a_name_that_was_made_to_mean_this_machine_is_refused(client, host):
    client.enter()
    assert client.send("/api/project", headers={"Host": host})[0] in (400, 421)


def test_a_tunnel_has_another_port(client):
    client.enter()
    host = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert client.send("/api/project", headers=host)[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_other_pages_change_nothing(client, origin):
    client.enter()
    body = b'{"file": "new.yaml", "text": "x: 1", "digest": ""}'
    assert client.send("/api/text", "PUT", body, {"Origin": origin})[0] == 403
    assert client.send("/api/project", headers={"Origin": origin})[0] == 403


def test_a_change_needs_an_origin(client):
    client.enter()
    cookie, client.cookie = client.cookie, ""
    assert client.send("/api/jobs", "POST", b"{}", {"Cookie": cookie})[0] == 403


def test_every_answer_forbids_foreign_content(client):
    refused = client.send("/")[2]
    client.enter()
    for headers in (refused, client.send("/api/project")[2], client.send("/static/nothing.js")[2]):
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_large_requests_are_refused_before_they_are_read(client, project_folder):
    client.enter()
    status, text, _ = client.send("/api/upload?name=a.png", "POST", None, {"Content-Length": str(1 << 40)})
    assert status == 413 and b"MiB" in text
    assert client.send("/api/upload?name=a.png", "POST", bytes(1 << 21))[0] == 413
    assert not (project_folder / "uploads").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_leave_the_project_do_not_exist(client, project_folder, name):
    (project_folder.parent / "secret.onnx").write_bytes((project_folder / "digits.onnx").read_bytes())
    (project_folder / "link.onnx").symlink_to(project_folder.parent / "secret.onnx")
    (project_folder / ".hidden.onnx").write_bytes((project_folder / "digits.onnx").read_bytes())
    client.enter()
    from urllib.parse import quote

    quoted = quote(name, safe="")
    for path in (f"/api/graph?file={quoted}", f"/api/time?file={quoted}", f"/api/text?file={quoted}"):
        status, _ = client.refusal(path)
        assert status in (400, 404)
    assert client.send(f"/static/{quoted}")[0] == 404
    body = {"action": "quantize", "model": name, "output": "x.mlir"}
    assert client.refusal("/api/jobs", "POST", body)[0] in (400, 404)
    if "/" in name or name.startswith(".") or "\\" in name:
        assert (
            client.refusal("/api/text", "PUT", {"file": f"{name}.yaml", "text": "", "digest": ""})[0] == 400
        )
    names = {file["name"] for file in client.json("/api/project")["files"]}
    assert "link.onnx" not in names and ".hidden.onnx" not in names


def test_a_folder_that_links_outside_is_not_entered(project_folder: Path):
    outside = project_folder.parent / "outside"
    outside.mkdir()
    (outside / "a.onnx").write_bytes((project_folder / "digits.onnx").read_bytes())
    os.symlink(outside, project_folder / "inside")
    project = Project(project_folder)
    assert all("inside" not in file.name for file in project.files())
    with pytest.raises(UsageError):
        project.path("inside/a.onnx")


@pytest.mark.parametrize(
    "request_body",
    [
        {"action": "rm", "model": "digits.onnx"},
        {"action": "quantize", "model": "digits.onnx", "output": "../x.mlir"},
        {"action": "quantize", "model": "digits.onnx", "output": "x.npu"},
        {"action": "quantize", "model": "digits.onnx", "output": "x.mlir", "target": "/etc/passwd"},
        {"action": "quantize", "model": "digits.onnx", "output": "x.mlir", "target": "--help"},
        {"action": "quantize", "model": "digits.onnx", "output": "x.mlir", "ladder": "--data=/etc"},
        {"action": "compile", "model": "digits.onnx", "output": "x.npu", "target": "edge-4t", "level": "9"},
        {
            "action": "compile",
            "model": "digits.onnx",
            "output": "x.npu",
            "target": "edge-4t",
            "devices": {"-o": "cpu"},
        },
        {
            "action": "compile",
            "model": "digits.onnx",
            "output": "x.npu",
            "target": "edge-4t",
            "devices": ["a"],
        },
        {"action": "compile", "model": ["digits.onnx"], "output": "x.npu"},
        ["quantize"],
        None,
    ],
)
def test_only_known_commands_with_checked_names_are_started(client, request_body, project_folder):
    client.enter()
    assert client.refusal("/api/jobs", "POST", request_body if request_body is not None else 0)[0] in (
        400,
        404,
    )
    assert client.json("/api/project")["jobs"] == [] and not (project_folder.parent / "x.mlir").exists()
