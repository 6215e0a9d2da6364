"""Chunks run on a Dask cluster. Its workers need the same npuc, and see the data and the models under the same paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npuc.errors import InternalError, MissingExtraError, NpucError, UsageError
from npuc.evaluate.plan import Plan, run_chunk
from npuc.evaluate.sample import Entry

_PATIENCE = 20
"""Seconds to wait for the scheduler and for a first worker."""


def run_on_cluster(
    plan: Plan, chunks: Sequence[tuple[int, list[Entry]]], address: str
) -> Iterator[tuple[int, list[str]]]:
    """The results of every chunk, with the position of its first sample, as they are done."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise MissingExtraError(
            "--cluster needs Dask's distributed", fix="Install it: pip install 'npuc[cluster]'"
        ) from error
    try:
        connect: Any = Client
        client = connect(address, timeout=_PATIENCE, set_as_default=False)
    except Exception as error:
        words = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(
            f"the cluster {address} cannot be reached: {words}",
            fix="The address is that of the scheduler, such as tcp://host:8786",
        ) from error
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
