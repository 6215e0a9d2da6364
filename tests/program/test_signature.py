"""A signed program loads with its key and with no other; not one bit of it can be changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.errors import FileFormatError, NpucError, SignatureError, UsageError
from npuc.program import checksums, elf, layout
from npuc.program.combine import combine
from npuc.program.file import load_compiled, load_entries, open_entries, save_compiled, sign_compiled, signer
from npuc.runtime import Runner
from support.programs.files import as_bytes, random_model, saved, sealed
from support.programs.keys import write_keys

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, 1)


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    path = tmp_path / "signed.npu"
    sign_compiled(saved(tmp_path / "plain.npu"), keys[0], path)
    return path


def test_a_signed_file_loads_with_its_key(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    model = load_compiled(signed, key=public)
    plain = (tmp_path / "plain.npu").read_bytes()
    raw = signer(signed)
    assert raw is not None
    for key in (None, private, raw):
        assert as_bytes(load_compiled(signed, key=key)) == plain
    # Without its signature it is the file that was signed.
    save_compiled(model, tmp_path / "again.npu")
    assert (tmp_path / "again.npu").read_bytes() == plain
    assert signer(tmp_path / "plain.npu") is None


def test_signing_is_deterministic_and_can_be_repeated(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    sign_compiled(signed, keys[0], tmp_path / "twice.npu")
    assert (tmp_path / "twice.npu").read_bytes() == signed.read_bytes()


def test_other_keys_and_unsigned_files_are_refused(signed: Path, tmp_path: Path) -> None:
    _, other = write_keys(tmp_path, 2)
    with pytest.raises(SignatureError, match="is signed by the key 8a88e3dd"):
        load_compiled(signed, key=other)
    with pytest.raises(SignatureError, match="is not signed"):
        Runner(tmp_path / "plain.npu", key=other)
    with pytest.raises(UsageError, match="32 bytes"):
        load_compiled(signed, key=b"short")
    with pytest.raises(UsageError, match="checksums"):
        load_compiled(signed, key=other, verify=False)
    with pytest.raises(UsageError, match="a model in memory"):
        Runner(load_compiled(signed), key=other)


def test_a_change_with_right_checksums_is_found(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    """Whoever changes a file can compute its checksums again, but not its signature."""
    data = signed.read_bytes()
    table = len(data) - checksums.size_for(len(data) - 64)
    rng = np.random.default_rng(3)
    accepted = 0
    for place in rng.integers(0, table, 60).tolist():
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "changed.npu").write_bytes(sealed(changed))
        try:
            load_compiled(tmp_path / "changed.npu")
            accepted += 1
        except FileFormatError:
            pass
        with pytest.raises(NpucError) as refusal:
            load_compiled(tmp_path / "changed.npu", key=keys[1])
        assert refusal.value.code in ("E102", "E105")
    assert accepted > 6  # without the key, many changes pass


def test_the_weights_are_signed_too(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """To open a file compares no weights; what is compared before the first run are the digests that were signed."""
    weights = np.arange(3 << 18, dtype=np.uint32).view(np.uint8)
    model = random_model()
    segments = (type(model.segments[0])("weights", "weights", weights.size), *model.segments[1:])
    saved(tmp_path / "large.npu", random_model(weights=weights, segments=segments))
    sign_compiled(tmp_path / "large.npu", keys[0], tmp_path / "signed.npu")
    data = bytearray((tmp_path / "signed.npu").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "damaged.npu").write_bytes(data)
    _, prove = open_entries(tmp_path / "damaged.npu", keys[1])
    with pytest.raises(FileFormatError, match="checksum"):
        prove()
    body = len(data) - next(n * 32 for n in range(1, 99) if checksums.size_for(len(data) - n * 32) == n * 32)
    (tmp_path / "damaged.npu").write_bytes(bytes(data[:body]) + checksums.seal([bytes(data[:body])]))
    with pytest.raises(SignatureError, match="was changed since it was signed"):
        open_entries(tmp_path / "damaged.npu", keys[1])


def test_a_program_with_entries_is_signed_as_a_whole(keys: tuple[Path, Path], tmp_path: Path) -> None:
    save_compiled(combine({"a": random_model(1), "b": random_model(2)}).entries, tmp_path / "both.npu")
    sign_compiled(tmp_path / "both.npu", keys[0], tmp_path / "signed.npu")
    assert list(load_entries(tmp_path / "signed.npu", key=keys[1])) == ["a", "b"]


def test_signatures_of_another_form_are_refused(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    data = bytearray(signed.read_bytes())
    parsed = elf.read(np.frombuffer(bytes(data), np.uint8), "")
    (section,) = (section for section in parsed.sections if section.name == layout.SIGNATURE)
    data[section.offset] = 9
    (tmp_path / "new.npu").write_bytes(sealed(data))
    with pytest.raises(SignatureError, match="does not know"):
        load_compiled(tmp_path / "new.npu", key=keys[1])


def test_files_that_are_no_keys(signed: Path, tmp_path: Path) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "curve.pem").write_bytes(
        curve.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (tmp_path / "public.pem").write_bytes(
        curve.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    (tmp_path / "locked.pem").write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    (tmp_path / "text.pem").write_text("no key")
    for name, words in (
        ("curve.pem", "not one of Ed25519"),
        ("public.pem", "not one of Ed25519"),
        ("locked.pem", "password"),
        ("text.pem", "is not a key.*openssl genpkey"),
    ):
        with pytest.raises(FileFormatError, match=words):
            load_compiled(signed, key=tmp_path / name)
    with pytest.raises(FileFormatError, match="is a public key, which verifies"):
        sign_compiled(signed, tmp_path / "public.pem", tmp_path / "again.npu")
