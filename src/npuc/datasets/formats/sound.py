"""Sounds: the samples of a .wav file as floats from -1 to 1, one channel.

What a network of spectra takes is made of them by a user's function (`--preprocess FILE.py:FUNCTION`).
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, ResourceLimitError
from npuc.files import existing_file

MAX_BYTES = 256 << 20


def read_sound(path: Path) -> Array:
    """All samples, as float32; several channels are averaged."""
    path = existing_file(path)
    if path.stat().st_size > MAX_BYTES:
        raise ResourceLimitError(f"is larger than {MAX_BYTES >> 20} MiB", where=str(path))
    try:
        with wave.open(str(path), "rb") as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            data = file.readframes(min(file.getnframes(), MAX_BYTES))
    except (wave.Error, EOFError, OSError) as error:
        raise FileFormatError(f"is not a readable .wav file ({error})", where=str(path)) from error
    if width not in (1, 2, 4) or channels < 1:
        raise FileFormatError(f"has samples of {8 * width} bits; 8, 16 and 32 are read", where=str(path))
    complete = len(data) // (width * channels) * width * channels
    samples: Array
    if width == 1:
        samples = (np.frombuffer(data[:complete], np.uint8).astype(np.float32) - 128) / 128
    else:
        samples = np.frombuffer(data[:complete], f"<i{width}").astype(np.float32) / float(
            1 << (8 * width - 1)
        )
    mixed: Array = samples.reshape(-1, channels).mean(axis=1, dtype=np.float32)
    return mixed
