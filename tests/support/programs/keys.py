"""Keys for signatures, made of a number."""

from __future__ import annotations

from pathlib import Path


def write_keys(folder: Path, number: int) -> tuple[Path, Path]:
    """A private and a public key in files."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    private, public = folder / f"private{number}.pem", folder / f"public{number}.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public
