"""The native core's Ed25519 accepts what RFC 8032 and `cryptography` accept, and nothing that is written in another form."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from npuc.native import library

VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
"""Key, message and signature of tests 1 to 3 in section 7.1 of RFC 8032."""
FIELD = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, FIELD) % FIELD


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    assert (len(key), len(signature)) == (32, 64)
    return bool(library().npuc_ed25519_verify(key, signature, message, ctypes.c_uint64(len(message))))


def is_sound(key: bytes) -> bool:
    return bool(library().npuc_ed25519_key_is_sound(key))


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_vectors_of_rfc_8032(key: str, message: str, signature: str) -> None:
    parts = bytes.fromhex(key), bytes.fromhex(signature), bytes.fromhex(message)
    assert is_sound(parts[0]) and verify(*parts)
    assert not verify(parts[0], parts[1], parts[2] + b"x")


def test_random_messages_have_the_verdict_of_cryptography() -> None:
    """Every length of a message around the blocks of SHA-512, and a changed bit of the key, the signature or the message."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.exceptions import InvalidSignature

    rng = np.random.default_rng(1)
    wrong = 0
    for size in (*range(40, 72), *range(168, 200), 0, 1, 100_000):
        private = ed25519.Ed25519PrivateKey.from_private_bytes(rng.bytes(32))
        key, message = private.public_key().public_bytes_raw(), rng.bytes(size)
        parts = [key, private.sign(message), message]
        assert verify(*parts)
        which = int(rng.integers(3 if size else 2))
        changed = bytearray(parts[which])
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
        parts[which] = bytes(changed)
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(parts[0]).verify(parts[1], parts[2])
            judged = True
        except InvalidSignature:
            judged = False
        assert verify(*parts) == judged
        wrong += not judged
    assert wrong > 60


def test_a_second_form_of_a_signature_is_refused() -> None:
    """s and s + order give the same point: whoever accepts both lets anyone write a second signature."""
    key, message, signature = (bytes.fromhex(text) for text in VECTORS[2])
    s = int.from_bytes(signature[32:], "little")
    for other in (s + ORDER, s + 2 * ORDER, s + 7 * ORDER, ORDER, 2**256 - 1):
        assert not verify(key, signature[:32] + other.to_bytes(32, "little"), message)


def test_numbers_of_the_field_have_one_form() -> None:
    """y + p would be the same point; only y below 19 leaves room for it."""
    for y in range(19):
        low, high = y.to_bytes(32, "little"), (y + FIELD).to_bytes(32, "little")
        assert not is_sound(high)
        xx = (y * y - 1) * pow(D * y * y + 1, -1, FIELD) % FIELD
        on_curve = xx == 0 or pow(xx, (FIELD - 1) // 2, FIELD) == 1
        assert is_sound(low) == (on_curve and y > 1)  # 0 and 1 are of small order
    assert not is_sound((1 + 2**255).to_bytes(32, "little"))  # x = 0 has no odd form


def test_keys_for_which_anyone_can_sign_are_refused() -> None:
    """A key of small order: with s = 0 and R = 0, [k] A = 0 for one message in eight or more."""
    zero = (1).to_bytes(32, "little")
    for key in (bytes(32), zero, (FIELD - 1).to_bytes(32, "little"), bytes(31) + b"\x80"):
        assert not is_sound(key)
        assert not any(verify(key, zero + bytes(32), bytes([k])) for k in range(32))
