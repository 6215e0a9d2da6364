"""The server of the studio: addresses, and what answers at each.

    GET  /                     the page, and /static/… its parts
    GET  /api/project          the files, the jobs, and a state that changes with any of them
    GET  /api/graph            ?file= &form=                      nodes, edges, scopes
    GET  /api/node             ?file= &form= &layer=              operands of a layer
    GET  /api/time             ?file=                             the profile of a program
    GET  /api/instructions     ?file= &part= &core= &first=       some instructions of a program
    GET  /api/placement        ?file= &target=                    devices with reasons
    GET  /api/compare          ?reference= &other= [&sample=]     the error of every layer
    GET  /api/tensor           the same, &name= [&channel=]       one tensor in both
    GET  /api/sensitivity      ?other= [&reference= &sample=]     what each layer's rounding alone costs at the outputs
    GET  /api/picture          ?file= &models= [&prepare= &recipe= &decode= &labels=]
                                                                  an image through models; lists and fields are JSON
    GET  /api/ranges           ?table= &stats=                    ranges of a calibration table
    PUT  /api/ranges           {file, table, changes, digest}     a table with other ranges
    GET  /api/range            ?stats= &name=                     the histogram of a tensor
    GET  /api/schedule         ?file=                             the groups of a schedule file
    PUT  /api/schedule         {file, schedule, digest}           a schedule file that fixes some of it
    GET  /api/frontier         ?reference= [&sample=]             every program: cycles and distance from a float network
    GET  /api/text             ?file=                             a configuration or schedule with its digest
    PUT  /api/text             {file, text, digest}               saved if nobody else did in between
    POST /api/upload           ?name=                             an image or tensors, into the folder 'uploads'
    POST /api/jobs             {action, …}                        start a command; DELETE /api/jobs/N cancels it
    GET  /api/targets          names of the machines

What answers is imported when it is asked, so that the page comes first.

An error of the user's is {error, code, fix} with status 400; it is the sentence that the command line would print.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc import __version__
from npuc.errors import FileMissingError, MissingExtraError, NpucError, UsageError
from npuc.files import make_folder, write_atomically
from npuc.studio.jobs import Jobs
from npuc.studio.page import asset, page_text
from npuc.studio.studio import ImageQuestion, Sample, Studio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_LARGEST_TEXT = 4 << 20
_TEXT_KINDS = frozenset({"configuration", "table", "json"})
_YAML = (".yaml", ".yml")
_UPLOADED = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".npz", ".npy"})


def application(studio: Studio, jobs: Jobs) -> Starlette:
    """The ASGI application, without the guard."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import ClientDisconnect
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtraError(
            "the studio is served by starlette, which is not installed",
            fix="Install it with: pip install 'npuc[studio]'",
        ) from error

    routes = _Routes(studio, jobs)

    def answers(work: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                return JSONResponse(await work(request))
            except FileMissingError as error:
                return JSONResponse(_told(error), 404)
            except _SavedInBetweenError as error:
                return JSONResponse(_told(error.refusal), 409)
            except NpucError as error:
                return JSONResponse(_told(error), 400)
            except ClientDisconnect:  # also what the guard makes of a body that is too large
                return JSONResponse(_told(UsageError("the request is too large, or was broken off")), 413)

        return respond

    async def page(request: Request) -> Response:
        return Response(page_text(), media_type="text/html")

    async def static(request: Request) -> Response:
        part = asset(request.path_params["name"])
        return (
            Response("there is no such part", 404) if part is None else Response(part[0], media_type=part[1])
        )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(jobs.close)

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", page),
            Route("/static/{name}", static),
            Route("/api/project", answers(routes.project)),
            Route("/api/graph", answers(routes.graph)),
            Route("/api/node", answers(routes.node)),
            Route("/api/time", answers(routes.time)),
            Route("/api/instructions", answers(routes.instructions)),
            Route("/api/placement", answers(routes.placement)),
            Route("/api/compare", answers(routes.compare)),
            Route("/api/tensor", answers(routes.tensor)),
            Route("/api/sensitivity", answers(routes.sensitivity)),
            Route("/api/picture", answers(routes.image)),
            Route("/api/ranges", answers(routes.ranges), methods=["GET"]),
            Route("/api/ranges", answers(routes.save_ranges), methods=["PUT"]),
            Route("/api/range", answers(routes.range)),
            Route("/api/schedule", answers(routes.schedule), methods=["GET"]),
            Route("/api/schedule", answers(routes.save_schedule), methods=["PUT"]),
            Route("/api/frontier", answers(routes.frontier)),
            Route("/api/targets", answers(routes.targets)),
            Route("/api/text", answers(routes.text), methods=["GET"]),
            Route("/api/text", answers(routes.save), methods=["PUT"]),
            Route("/api/upload", answers(routes.upload), methods=["POST"]),
            Route("/api/jobs", answers(routes.start), methods=["POST"]),
            Route("/api/jobs/{number:int}", answers(routes.job), methods=["GET"]),
            Route("/api/jobs/{number:int}", answers(routes.cancel), methods=["DELETE"]),
        ],
    )


class _SavedInBetweenError(Exception):
    """Somebody else saved the file in between."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.refusal = UsageError(
            f"'{name}' was changed in between", fix="Load it again, and make the change there"
        )


def _told(error: NpucError) -> dict[str, str | None]:
    return {"error": error.message, "code": error.code, "fix": error.fix, "where": error.where}


class _Routes:
    """What answers at each address; work that takes long runs in a thread."""

    def __init__(self, studio: Studio, jobs: Jobs) -> None:
        self.studio, self.jobs, self.files = studio, jobs, studio.project

    async def project(self, _: Request) -> Any:
        files = [file.as_json() for file in await asyncio.to_thread(self.files.files)]
        jobs = [job.as_json() for job in self.jobs.all()]
        state = hashlib.sha256(json.dumps([files, jobs]).encode()).hexdigest()[:16]
        return {
            "name": self.files.folder.name,
            "version": __version__,
            "files": files,
            "jobs": jobs,
            "state": state,
        }

    async def graph(self, request: Request) -> Any:
        file, form = _needed(request, "file"), request.query_params.get("form", "canonical")
        return await asyncio.to_thread(lambda: self.studio.graph(file, form).as_json())

    async def node(self, request: Request) -> Any:
        file, layer = _needed(request, "file"), _needed(request, "layer")
        form = request.query_params.get("form", "canonical")
        return await asyncio.to_thread(self.studio.node, file, form, layer)

    async def time(self, request: Request) -> Any:
        return await asyncio.to_thread(self.studio.time, _needed(request, "file"))

    async def instructions(self, request: Request) -> Any:
        numbers = (_number(request, key) for key in ("part", "core", "first"))
        return await asyncio.to_thread(self.studio.instructions, _needed(request, "file"), *numbers)

    async def placement(self, request: Request) -> Any:
        from npuc.studio.actions import target_named

        file, target = _needed(request, "file"), target_named(_needed(request, "target"))
        return await asyncio.to_thread(self.studio.placement, file, target)

    async def compare(self, request: Request) -> Any:
        reference, other, sample = _pair(request)
        return await asyncio.to_thread(self.studio.compare, reference, other, sample)

    async def tensor(self, request: Request) -> Any:
        name, channel = _needed(request, "name"), _number(request, "channel")
        return await asyncio.to_thread(self.studio.tensor, *_pair(request), name, channel)

    async def sensitivity(self, request: Request) -> Any:
        names = [_needed(request, "other"), request.query_params.get("reference", "")]
        sample = Sample(request.query_params.get("sample", ""), _number(request, "seed"))
        return await asyncio.to_thread(self.studio.sensitivity, names, sample)

    async def image(self, request: Request) -> Any:
        models, prepare = _parsed(request, "models", list), _parsed(request, "prepare", dict)
        if not all(isinstance(name, str) for name in models):
            raise UsageError("'models' are names of files")
        words = (request.query_params.get(key, "") for key in ("recipe", "decode", "labels"))
        question = ImageQuestion(_needed(request, "file"), tuple(models), prepare, *words)
        return await asyncio.to_thread(self.studio.image, question)

    async def ranges(self, request: Request) -> Any:
        return await asyncio.to_thread(
            self.studio.ranges, _needed(request, "table"), _needed(request, "stats")
        )

    async def range(self, request: Request) -> Any:
        return await asyncio.to_thread(self.studio.range, _needed(request, "stats"), _needed(request, "name"))

    async def save_ranges(self, request: Request) -> Any:
        body = await _body(request)
        name, table, digest = (_string(body, key) for key in ("file", "table", "digest"))
        text = await asyncio.to_thread(self.studio.edited_table, table, body.get("changes"))
        return self._saved(name, text, digest, (".cali",))

    async def schedule(self, request: Request) -> Any:
        return await asyncio.to_thread(self.studio.schedule, _needed(request, "file"))

    async def save_schedule(self, request: Request) -> Any:
        from npuc.studio.schedules import schedule_text

        body = await _body(request)
        name, digest = _string(body, "file"), _string(body, "digest")
        return self._saved(name, schedule_text(body.get("schedule")), digest, _YAML)

    async def frontier(self, request: Request) -> Any:
        sample = request.query_params.get("sample", "")
        return await asyncio.to_thread(self.studio.frontier, _needed(request, "reference"), sample)

    async def targets(self, _: Request) -> Any:
        from npuc.target import available

        return {"targets": [file.name for file in available()]}

    async def text(self, request: Request) -> Any:
        path = self._text_path(_needed(request, "file"))
        if path.stat().st_size > _LARGEST_TEXT:
            raise UsageError(f"'{path.name}' is larger than {_LARGEST_TEXT >> 20} MiB")
        content = path.read_bytes()
        return {"text": content.decode("utf-8", "replace"), "digest": _digest(content)}

    async def save(self, request: Request) -> Any:
        """Save a text if it is still the one that the page read; an empty digest is a new file."""
        body = await _body(request)
        name, text, digest = (_string(body, key) for key in ("file", "text", "digest"))
        return self._saved(name, text, digest, _YAML)

    def _saved(self, name: str, text: str, digest: str, endings: tuple[str, ...]) -> dict[str, str]:
        """Write a text, if the file is still what the digest says."""
        path = self.files.place(name)
        if path.suffix.lower() not in endings:
            raise UsageError(f"'{name[:100]}' does not end in {' or '.join(endings)}")
        if len(text) > _LARGEST_TEXT:
            raise UsageError(f"a text has at most {_LARGEST_TEXT >> 20} MiB")
        if path.exists() and (not path.is_file() or path.stat().st_size > _LARGEST_TEXT):
            raise UsageError(f"'{name[:100]}' is no text that can be replaced")
        before = _digest(path.read_bytes()) if path.exists() else ""
        if before != digest:
            raise _SavedInBetweenError(name)
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write(text.encode())
        return {"digest": _digest(text.encode())}

    async def upload(self, request: Request) -> Any:
        name = _needed(request, "name")
        if "/" in name or Path(name).suffix.lower() not in _UPLOADED:
            raise UsageError(
                f"'{name[:100]}' is no image or tensor file",
                fix=f"It ends in one of {', '.join(sorted(_UPLOADED))}",
            )
        path = self.files.place(f"uploads/{name}")
        content = await request.body()
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write(content)
        return {"file": f"uploads/{name}"}

    async def start(self, request: Request) -> Any:
        from npuc.studio.actions import command_of

        body = await _body(request)
        title, arguments, writes = command_of(self.files, body)
        return self.jobs.start(title, arguments, writes, wait=body.get("wait") is True).as_json()

    async def job(self, request: Request) -> Any:
        job = self.jobs.job(request.path_params["number"])
        return job.as_json() | {"result": job.result}

    async def cancel(self, request: Request) -> Any:
        return (await asyncio.to_thread(self.jobs.cancel, request.path_params["number"])).as_json()

    def _text_path(self, name: str) -> Path:
        kinds = {file.name: file.kind for file in self.files.files()}
        if kinds.get(name) not in _TEXT_KINDS:
            raise FileMissingError(f"the project has no text file '{name[:100]}'")
        return self.files.path(name)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _needed(request: Request, key: str) -> str:
    value: str | None = request.query_params.get(key)
    if not value:
        raise UsageError(f"the request has no '{key}'")
    return value


def _number(request: Request, key: str) -> int:
    text = request.query_params.get(key, "0")
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"'{key}' is not a number")
    return int(text)


def _parsed(request: Request, key: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """A list or an object that the address has as JSON; empty without it."""
    try:
        value = json.loads(request.query_params.get(key) or json.dumps(kind()))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise UsageError(f"'{key}' is no JSON {'list' if kind is list else 'object'}")
    return value


def _pair(request: Request) -> tuple[str, str, Sample]:
    sample = Sample(request.query_params.get("sample", ""), _number(request, "seed"))
    return _needed(request, "reference"), _needed(request, "other"), sample


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise UsageError("the request is not a JSON object")
    return body


def _string(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request has no text '{key}'")
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise UsageError(f"'{key}' is not text") from None
    return value
