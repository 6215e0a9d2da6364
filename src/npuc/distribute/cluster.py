"""Chunks run on a Dask cluster. Its workers need the same npuc, and see data and models under the same paths."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

from npuc.distribute.plan import Chunk, WorkPlan
from npuc.errors import InternalError, MissingExtraError, NpucError, UsageError
from npuc.plugin_code import fault_of

_PATIENCE = 20
"""Seconds to wait for the scheduler and for a first worker."""


def run_on_cluster(plan: WorkPlan, chunks: Sequence[Chunk], address: str) -> Iterator[tuple[int, Any]]:
    """The results of every chunk, with its number, as they are done."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise MissingExtraError(
            "a cluster needs Dask's distributed", fix="Install it: pip install 'npuc[cluster]'"
        ) from error
    _probe(address)
    try:
        connect: Any = Client
        client = connect(address, timeout=_PATIENCE, set_as_default=False)
    except Exception as error:
        raise _unreachable(address, next(iter(str(error).splitlines()), type(error).__name__)) from error
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except Exception as error:
            raise UsageError(
                f"the cluster {address} has no workers", fix="Start dask workers first"
            ) from error
        futures = {
            # What a dying worker had is run by another: Dask does that by itself.
            client.submit(run_chunk, plan, work, key=f"npuc-{plan.key}-{number}", pure=False): number
            for number, work in chunks
        }
        finished: Any = as_completed
        for future in finished(list(futures), loop=client.loop):
            try:
                result = future.result()
            except NpucError:
                raise
            except Exception as error:
                raise InternalError(f"the cluster failed: {type(error).__name__}: {error}") from error
            number = futures.pop(future)
            future.release()
            yield number, result
    finally:
        client.close()


_open: dict[str, Callable[[Any], Any]] = {}
_opening = Lock()


def run_chunk(plan: WorkPlan, work: Any) -> Any:
    """Run a chunk in a process of a cluster; the plan stays open from chunk to chunk."""
    with _opening:
        if plan.key not in _open:
            _open.clear()
            _open[plan.key] = plan.open()
        run = _open[plan.key]
    try:
        return run(work)
    except Exception as error:
        fault = fault_of(error)  # a traceback does not survive the way to the other process
        if fault is None:
            raise
        raise fault from error


def _probe(address: str) -> None:
    """Somebody listens there; Dask itself takes minutes to give up on an address that nobody answers."""
    scheme, separator, rest = address.rpartition("://")
    if separator and scheme not in ("tcp", "tls"):
        return
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _unreachable(address, "it is no host and port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _unreachable(address: str, words: str) -> UsageError:
    return UsageError(
        f"the cluster {address} cannot be reached: {words}",
        fix="The address is that of the scheduler, such as tcp://host:8786",
    )
