"""Times and numbers in the Trace Event Format, so that every viewer reads them as they are meant.

Perfetto keeps whole nanoseconds and drops a slice that crosses another of its thread, be it by one; an arrow whose id is not a
hexadecimal number it does not draw. tests/support/trace_rules.py has the rules.
"""

from __future__ import annotations

import math


def microseconds(nanoseconds: int) -> float:
    """A time as the format wants it. Readers that multiply by 1000 and cut off the rest get the same nanoseconds again.

    >>> microseconds(1500), int(1.001 * 1000), int(microseconds(1001) * 1000)
    (1.5, 1000, 1001)
    """
    quotient = nanoseconds / 1000
    return quotient if int(quotient * 1000) >= nanoseconds else math.nextafter(quotient, math.inf)


def identity(process: int, number: int) -> str:
    """The id of the number-th thing of a process, which no other process has.

    >>> identity(5, 1)
    '0x500000001'
    """
    return f"0x{process << 32 | number:x}"
