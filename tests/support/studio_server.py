"""A project with one network in four forms, and a server of it on a free port."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from npuc.calib.sources import open_data
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import save_graph
from npuc.program.file import save_compiled
from npuc.studio.guard import Guard
from npuc.studio.jobs import Jobs
from npuc.studio.project import Project
from npuc.studio.studio import Studio
from npuc.target import load_target


@pytest.fixture(scope="session")
def studio_files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example network as ONNX, as integers and compiled, and its samples; not to be changed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("digits.onnx", "digits_samples.npz"):
        shutil.copy(root / "examples" / name, folder)
    machine = load_target("edge-4t")
    graph = network_to_quantize(folder / "digits.onnx")
    ranges = ranges_from(
        graph, open_data(graph, folder / "digits_samples.npz"), schemes_of(graph, None, machine), "max"
    )
    quantized = quantize_network(graph, ranges, None, machine).graph
    save_graph(quantized, folder / "digits.mlir")
    save_compiled(
        compile_program(quantized, machine, CompileOptions(1), name="digits").model, folder / "digits.npu"
    )
    return folder


@pytest.fixture
def project_folder(studio_files: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    folder = tmp_path / "project"
    shutil.copytree(studio_files, folder)
    return folder


@dataclass
class Client:
    """A browser without a screen: it keeps the cookie and says what it is told to."""

    port: int
    token: str
    cookie: str = ""

    def send(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """One request with exactly these headers beside the cookie; a header that is None is not sent."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Cookie": self.cookie, "Origin": f"http://127.0.0.1:{self.port}"} if self.cookie else {}
        sent |= dict(headers or {})
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            for key, value in sent.items():
                connection.putheader(key, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return (
                response.status,
                response.read(),
                {key.lower(): value for key, value in response.getheaders()},
            )
        finally:
            connection.close()

    def enter(self) -> None:
        """Exchange the token for the cookie."""
        status, _, headers = self.send(f"/?token={self.token}")
        assert status == 303
        self.cookie = headers["set-cookie"].partition(";")[0]

    def json(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """A question that is answered."""
        status, text, _ = self.send(path, method, None if body is None else json.dumps(body).encode())
        assert status == 200, text
        return json.loads(text)

    def refusal(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, str]:
        """A question that is refused, and why."""
        status, text, _ = self.send(path, method, None if body is None else json.dumps(body).encode())
        assert status >= 400
        return status, json.loads(text)["error"]


@pytest.fixture
def client(project_folder: Path) -> Iterator[Client]:
    """A server of the project, and somebody who has not entered yet."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'npuc[studio]'")
    from npuc.studio.server import application

    jobs = Jobs(project_folder)
    guard = Guard(application(Studio(Project(project_folder)), jobs), most_body=1 << 20)
    config = uvicorn.Config(guard, host="127.0.0.1", port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    assert guard.token is not None
    yield Client(server.servers[0].sockets[0].getsockname()[1], guard.token)
    server.should_exit = True
    thread.join(30)
