"""SOPHGO's functional model and encoder of the BM1684X in a process of their own, which a failed assertion of theirs ends.

It is started by `support.sophgo` as a script, with the folder of the vendor's libraries, and knows nothing of npuc. It reads one
request as JSON from its input and writes one answer as JSON.

    {"execute": [{"pokes": [[64, "ff00…"]], "commands": [["tiu", "01ff…"], …]}, …], "seed": 7, "ddr": 65536, "every": 4}
                                                    {"digests": [[crc of lane 0, …, crc of DDR], …]}
    {"encode": [call, …]}                           {"commands": ["01ff…", …], "cycles": [4, …]}
    {"timeline": [[call, …], …]}                    {"timeline": "…"}, the vendor's text; the engines meet after each list
    {"legal": [call, …]}                            {"refusals": [null, "shape->n > 0", …]}

A call is an engine, a command's number, the number that it waits for, a function, and its arguments as pairs of type and value.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

LANES, LANE_BYTES = 64, 256 * 1024
_Pointer = ctypes.c_void_p
_LAZY = 1


class _LocalMemory(ctypes.Structure):
    _fields_ = [("bytes", ctypes.POINTER(ctypes.c_uint8))]


def memory(seed: int, ddr: int) -> tuple[Any, Any]:
    """Lanes and DDR full of random bytes, the same for the same seed."""
    rng = np.random.default_rng(seed)
    lanes = rng.integers(0, 256, (LANES, LANE_BYTES), np.uint8)
    return lanes, rng.integers(0, 256, ddr, np.uint8)


def digests(lanes: Any, ddr: Any) -> list[int]:
    """Of each lane, and of DDR."""
    return [zlib.crc32(row.data) for row in (*lanes, ddr)]


def execute(folder: str, request: dict[str, Any]) -> dict[str, Any]:
    """Commands one after the other in the functional model, and the memories after every so many draws and the last."""
    model = ctypes.CDLL(os.path.join(folder, "libcmodel_bm1684x.so"))
    model.cmodel_init.argtypes = [ctypes.c_int32, ctypes.c_int64]
    model.get_local_mem.restype = ctypes.POINTER(_LocalMemory)
    model.get_global_memaddr.restype = _Pointer
    model.execute_command.argtypes = [ctypes.c_int32, _Pointer, ctypes.c_uint]
    model.cmodel_init(0, 1 << 28)
    lanes, ddr = memory(request["seed"], request["ddr"])
    own_lanes = np.ctypeslib.as_array(model.get_local_mem(0).contents.bytes, (LANES * LANE_BYTES,))
    own_ddr = np.ctypeslib.as_array(
        ctypes.cast(model.get_global_memaddr(0), ctypes.POINTER(ctypes.c_uint8)), (request["ddr"],)
    )
    own_lanes[:], own_ddr[:] = lanes.reshape(-1), ddr
    found = []
    for number, draw in enumerate(request["execute"], 1):
        for at, words in draw["pokes"]:
            data = bytes.fromhex(words)
            own_ddr[at : at + len(data)] = np.frombuffer(data, np.uint8)
        for engine, words in draw["commands"]:
            command = np.frombuffer(bytes.fromhex(words), np.uint8).copy()
            model.execute_command(0, command.ctypes.data, int(engine == "gdma"))
        if number % request["every"] == 0 or number == len(request["execute"]):
            found.append(digests(own_lanes.reshape(LANES, LANE_BYTES), own_ddr))
    return {"digests": found}


class Encoder:
    """The vendor's encoder, with its cycle table and its timeline."""

    def __init__(self, folder: str) -> None:
        # It has symbols that nothing defines, and so is bound lazily.
        loader = ctypes.CDLL(None)
        loader.dlopen.restype, loader.dlopen.argtypes = _Pointer, [ctypes.c_char_p, ctypes.c_int]
        path = os.path.join(folder, "libbackend_bm1684x.so")
        library = ctypes.CDLL(path, handle=loader.dlopen(path.encode(), _LAZY))
        library.cmodel_init.argtypes = [ctypes.c_int, ctypes.c_uint64]
        library.create_cmd_id_node.restype = _Pointer
        for name in (
            "reset_cmd_id",
            "tpu_set_id_node",
            "tpu_get_id_node",
            "get_cmd_id_cycle",
            "sg_stas_dump",
        ):
            getattr(library, name).argtypes = [_Pointer]
        library.get_cmd_id_cycle.restype = ctypes.c_int64
        library.backend_api_get_tpu_inst_size.restype = ctypes.c_uint
        library.backend_api_get_tpu_inst_data.restype = _Pointer
        library.sg_set_profile_dump.argtypes = [ctypes.c_bool]
        library.cmodel_init(0, 1 << 28)
        library.backend_api_set_core_info(0, 1)
        library.forbid_atomic_cmodel()
        library.allow_atomic_cmodel_assert()
        library.load_lookup_tables()
        self._library = library
        self._node = library.create_cmd_id_node()
        self._numbers = (ctypes.c_uint32 * 2).from_address(self._node)
        """The last command of the TIU, and of the GDMA."""

    def encode(self, calls: list[Any]) -> dict[str, Any]:
        """The bytes and cycles of each command."""
        library, found, cycles = self._library, [], []
        library.allow_store_cmd()
        library.reset_cmd_id(self._node)
        library.backend_api_clear_tpu_inst_data()
        for call in calls:
            queue = f"{call[0]}:0:0".encode()
            before = library.backend_api_get_tpu_inst_size(queue)
            spent = library.get_cmd_id_cycle(self._node)
            self._call(call)
            size = library.backend_api_get_tpu_inst_size(queue)
            start = library.backend_api_get_tpu_inst_data(queue)
            found.append(ctypes.string_at(start + before, size - before).hex())
            cycles.append(library.get_cmd_id_cycle(self._node) - spent)
        return {"commands": found, "cycles": cycles}

    def timeline(self, steps: list[list[Any]]) -> dict[str, Any]:
        """Both engines in each step; the next begins when both are done: the vendor's timeline knows no other wait."""
        library = self._library
        library.forbid_store_cmd()
        with tempfile.TemporaryDirectory() as folder:
            library.sg_set_profile_path(f"{folder}/".encode())
            library.sg_stas_reset()
            library.sg_set_profile_dump(True)
            library.reset_cmd_id(self._node)
            library.tpu_set_id_node(self._node)
            for step in steps:
                library.tpu_parallel_start()
                for call in step:
                    self._function(call)
                library.tpu_parallel_end()
            library.tpu_get_id_node(self._node)
            library.sg_stas_dump(self._node)
            ctypes.CDLL(None).fflush(None)
            return {"timeline": "".join(path.read_text() for path in sorted(Path(folder).iterdir()))}

    def refusal(self, call: Any) -> str | None:
        """What the vendor asserts against a command; None if nothing. Each is tried in a process of its own."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            os.dup2(write, 1)
            os.dup2(write, 2)
            self._library.forbid_store_cmd()
            self._library.reset_cmd_id(self._node)
            self._call([call[0], 1, 0, *call[3:]])
            ctypes.CDLL(None).fflush(None)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            printed = stream.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        if not status:
            return None
        told = re.search(r"ASSERT [^:]*: ([^:]*: \d+: .*)", printed)
        return told.group(1) if told else f"status {status}: {printed[-200:]}"

    def _call(self, call: Any) -> None:
        engine, number, waits = call[:3]
        own, other = (0, 1) if engine == "tiu" else (1, 0)
        self._numbers[own], self._numbers[other] = number - 1, waits
        self._library.tpu_set_id_node(self._node)
        self._function(call)
        self._library.tpu_get_id_node(self._node)

    def _function(self, call: Any) -> None:
        getattr(self._library, call[3])(*(_argument(*pair) for pair in call[4]))


_TYPES = {
    "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "i32": ctypes.c_int, "u8": ctypes.c_ubyte, "i8": ctypes.c_byte,
    "bool": ctypes.c_bool,
}  # fmt: skip


def _argument(kind: str, value: Any) -> Any:
    if kind == "ints":
        return None if value is None else (ctypes.c_int * len(value))(*value)
    return _TYPES[kind](value)


def main() -> None:
    """One request, one answer."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the vendor's libraries print
    request = json.load(sys.stdin)
    if "execute" in request:
        told = execute(sys.argv[1], request)
    elif "encode" in request:
        told = Encoder(sys.argv[1]).encode(request["encode"])
    elif "timeline" in request:
        told = Encoder(sys.argv[1]).timeline(request["timeline"])
    else:
        encoder = Encoder(sys.argv[1])
        told = {"refusals": [encoder.refusal(call) for call in request["legal"]]}
    json.dump(told, answer)
    answer.flush()
    os._exit(0)  # the destructors of the vendor's libraries do not end well


if __name__ == "__main__":
    main()
