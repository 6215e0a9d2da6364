"""Chunks run on a Dask cluster. Its workers need the same npuc, and see the data and the models under the same paths."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

from npuc.datasets.sample import SampleEntry
from npuc.errors import InternalError, MissingExtraError, NpucError, UsageError
from npuc.evaluate.plan import Plan, run_chunk

_PATIENCE = 20
"""Seconds to wait for the scheduler and for a first worker."""


def run_on_cluster(
    plan: Plan, chunks: Sequence[tuple[int, list[SampleEntry]]], address: str
) -> Iterator[tuple[int, list[str]]]:
    """The results of every chunk, with the position of its first sample, as they are done."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise MissingExtraError(
            "--cluster needs Dask's distributed", fix="Install it: pip install 'npuc[cluster]'"
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
            client.submit(run_chunk, plan, entries, key=f"npuc-{plan.key}-{first}", pure=False): first
            for first, entries in chunks
        }
        finished: Any = as_completed
        for future in finished(list(futures), loop=client.loop):
            try:
                result = future.result()
            except NpucError:
                raise
            except Exception as error:
                raise InternalError(f"the cluster failed: {type(error).__name__}: {error}") from error
            first = futures.pop(future)
            future.release()
            yield first, result
    finally:
        client.close()


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
