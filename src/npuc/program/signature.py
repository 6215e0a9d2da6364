"""Signed programs: who vouches for a `.npu` file, and that nothing was changed since.

A checksum finds damage; whoever changes a file on purpose can compute it again. A signature (Ed25519) is of the checksums,
and so of every byte but its own. To verify one takes a time that does not grow with the weights: their digests are what is
signed, and they are compared with those before the first run. Keys are PEM files, such as OpenSSL writes.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import FileFormatError, MissingExtraError, SignatureError, UsageError
from npuc.files import existing_file, write_atomically
from npuc.native import library
from npuc.program import checksums, elf, layout

_PREFIX = b"npuc signature of a .npu file\0"
_ED25519 = 1
_RECORD = layout.SIGNATURE_RECORD
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_LARGEST_KEY_FILE = 1 << 16


def sign(
    program: tuple[list[elf.Section], list[elf.Load]], private_key: Path | str, path: Path | str
) -> bytes:
    """Write the sections of a program (`file_writer.make_sections`) with a signature; returns the public key."""
    key = _private_key(private_key)
    public: bytes = key.public_key().public_bytes_raw()
    sections, loads = program
    empty = _RECORD.make([(_ED25519, 0, list(public), [0] * _SIGNATURE_BYTES)])
    *others, weights = (section for section in sections if section.name != layout.SIGNATURE)
    signed = [*others, elf.Section(layout.SIGNATURE, empty, entry_size=_RECORD.size), weights]
    out = io.BytesIO()
    elf.write(out, signed, loads)
    data = np.frombuffer(out.getbuffer(), np.uint8)
    parsed = elf.read(data, str(path))
    view = _section(parsed)
    assert view is not None
    signature: bytes = key.sign(_PREFIX + _digest(parsed, view))
    place = view.offset + _RECORD.size - _SIGNATURE_BYTES
    data[place : place + _SIGNATURE_BYTES] = np.frombuffer(signature, np.uint8)
    body = parsed.checksums.body
    with write_atomically(path) as file:
        file.write(body.data)
        file.write(checksums.seal([body.data]))
    return public


def signer_of(parsed: elf.Elf, where: str) -> bytes | None:
    """The public key that a file says it is signed with; None if it is not signed. Nothing is verified."""
    section = _section(parsed)
    return None if section is None else _record(section, where)[0]


def check_signature(parsed: elf.Elf, key: bytes, where: str) -> None:
    """Raise `SignatureError` unless a file, whose table of checksums is right, is signed by this key."""
    section = _section(parsed)
    fix = "Ask whoever made the file, or sign it with 'npuc sign' if that is you"
    if section is None:
        raise SignatureError("is not signed", where=where, fix=fix)
    signer, signature = _record(section, where)
    if signer != key:
        raise SignatureError(f"is signed by the key {signer.hex()}, not by {key.hex()}", where=where, fix=fix)
    if not _is_right(key, signature, _PREFIX + _digest(parsed, section)):
        raise SignatureError("was changed since it was signed: its signature is wrong", where=where, fix=fix)


def public_key(key: Path | str | bytes) -> bytes:
    """The 32 bytes of a public key: those bytes themselves, or a PEM file (a private key has its public one in it)."""
    if isinstance(key, bytes):
        if len(key) != _KEY_BYTES:
            raise UsageError(f"a public key has {_KEY_BYTES} bytes, not {len(key)}")
        return _sound(key)
    ed25519, serialization = _modules()
    text = _key_file(key)
    try:
        loaded = serialization.load_pem_public_key(text)
    except (ValueError, TypeError):
        return bytes(_private_key(key).public_key().public_bytes_raw())
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise FileFormatError("is a public key, but not one of Ed25519", where=str(key))
    return _sound(bytes(loaded.public_bytes_raw()), str(key))


def _sound(key: bytes, where: str | None = None) -> bytes:
    """A key, unless it is none, or one with which anything can be signed."""
    if not library().npuc_ed25519_key_is_sound(key):
        raise FileFormatError(
            "is no public key of Ed25519, or one of small order, for which anyone can sign",
            where=where or f"the key {key.hex()}",
            fix="Give the key that 'npuc sign' prints, or its PEM file",
        )
    return key


def _section(parsed: elf.Elf) -> elf.SectionView | None:
    sections = [section for section in parsed.sections if section.name == layout.SIGNATURE]
    return sections[0] if len(sections) == 1 else None


def _record(section: elf.SectionView, where: str) -> tuple[bytes, bytes]:
    if section.data.size == _RECORD.size and section.entry_size == _RECORD.size:
        algorithm, reserved, key, signature = section.data.view(_RECORD.dtype)[0].tolist()
        if algorithm == _ED25519 and not reserved:
            return bytes(key), bytes(signature)
    raise SignatureError(
        "has a signature that this npuc does not know", where=where, fix="Update npuc, or sign the file again"
    )


def _digest(parsed: elf.Elf, section: elf.SectionView) -> bytes:
    """The digest of all digests that the file would have with zeros for its signature."""
    sums = parsed.checksums
    table = bytearray(sums.table.tobytes()[: -checksums.BYTES])
    end = section.offset + _RECORD.size
    first = end - _SIGNATURE_BYTES
    for chunk in range(first // checksums.CHUNK, (end - 1) // checksums.CHUNK + 1):
        start = chunk * checksums.CHUNK
        data = bytearray(sums.body[start : start + checksums.CHUNK].tobytes())
        low, high = max(first - start, 0), min(end - start, len(data))
        data[low:high] = bytes(high - low)
        table[chunk * checksums.BYTES : (chunk + 1) * checksums.BYTES] = hashlib.sha256(data).digest()
    return hashlib.sha256(table).digest()


def _is_right(key: bytes, signature: bytes, message: bytes) -> bool:
    """By the native core, as the C runtime does it: both have the same verdict."""
    return bool(library().npuc_ed25519_verify(key, signature, message, ctypes.c_uint64(len(message))))


def _private_key(path: Path | str) -> Any:
    ed25519, serialization = _modules()
    text = _key_file(path)
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise FileFormatError(
            "is a key with a password, which npuc cannot ask for",
            where=str(path),
            fix="Take the password off",
        ) from error
    except ValueError as error:
        if _is_public(text):
            raise FileFormatError(
                "is a public key, which verifies signatures; a private one makes them",
                where=str(path),
                fix="Give the file that 'openssl genpkey' wrote",
            ) from error
        raise FileFormatError(
            "is not a key (a PEM file)",
            where=str(path),
            fix="Make one with: openssl genpkey -algorithm ed25519 -out key.pem",
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise FileFormatError(
            "is a private key, but not one of Ed25519",
            where=str(path),
            fix="Make one with: openssl genpkey -algorithm ed25519 -out key.pem",
        )
    return key


def _is_public(text: bytes) -> bool:
    _, serialization = _modules()
    try:
        serialization.load_pem_public_key(text)
    except ValueError:
        return False
    return True


def _key_file(path: Path | str) -> bytes:
    file = existing_file(path)
    if file.stat().st_size > _LARGEST_KEY_FILE:
        raise FileFormatError("is too large for a key", where=str(path))
    return file.read_bytes()


def _modules() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError(
            "signatures need the package cryptography, which is not installed",
            fix="Install it with: pip install 'npuc[sign]'",
        ) from error
    return ed25519, serialization
