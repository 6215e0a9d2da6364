"""Words about numbers of things, in the right form: one layer, two layers, one sample was, two samples were."""

from __future__ import annotations


def plural(noun: str) -> str:
    """The plural of a regular noun.

    >>> plural("layer"), plural("entry"), plural("class"), plural("axis")
    ('layers', 'entries', 'classes', 'axes')
    """
    if noun.endswith("is"):
        return f"{noun[:-2]}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(number: int, noun: str, singular: str = "", several: str = "") -> str:
    """So many of something, with a verb behind it if it is given for one and for several.

    >>> counted(1, "layer"), counted(1200, "layer"), counted(1, "sample", "was", "were"), counted(0, "sample", "was", "were")
    ('1 layer', '1200 layers', '1 sample was', '0 samples were')
    """
    verb = singular if number == 1 else several
    return f"{number} {noun if number == 1 else plural(noun)}{f' {verb}' if verb else ''}"
