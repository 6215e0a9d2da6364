"""The C header of element types, requantization kinds and roundings, and the table of kinds in docs/arithmetic.md.

`python -m npuc.cli.gendocs` writes native/include/npuc/kinds.h and that part of the page from `npuc.arithmetic`; a test fails
if either is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from npuc.arithmetic.dtypes import CODES, PACKED_BASE, dtype_of
from npuc.arithmetic.kinds import KINDS, ROUNDINGS

BEGIN, END = "<!-- kinds: written by `make docs` -->", "<!-- end of kinds -->"

_TOP = """\
/*
 * npuc: codes of element types, requantization kinds and roundings, made by `make docs` from src/npuc/arithmetic. Do not edit.
 */
#ifndef NPUC_KINDS_H
#define NPUC_KINDS_H
"""
_PACKED = """\
/*
 * Weights may also be signed integers of b bits that lie packed, from the lowest bit of each byte up; their code is
 * NPUC_PACKED + b. The macro has the bits of a packed weight, 0 for types that are not packed.
 */
#define NPUC_PACKED {base}
#define NPUC_ODD_BITS(b) ((b) >= 2 && (b) <= 15 && (b) != 4 && (b) != 8 ? (b) : 0)
#define NPUC_PACKED_BITS(dtype) ((dtype) == NPUC_I4 ? 4 : NPUC_ODD_BITS((dtype) - NPUC_PACKED))
"""
_NOTES = {
    "i4": "two to a byte, the even element in the low nibble",
    "mx6": "packed blocks: docs/arithmetic-float.md",
    "mx9": "packed blocks, too",
}


def kinds_header() -> str:
    """The text of native/include/npuc/kinds.h."""
    types = [(dtype_of(name).short, _NOTES.get(name, "")) for name in CODES]
    has = {
        "MULTIPLIER": "a multiplier, of 31 bits at most",
        "SHIFT": "a shift",
        "SCALE": "a scale in float32",
    }
    masks = {name: sum(1 << kind.code for kind in KINDS if name.lower() in kind.parameters) for name in has}
    return "\n".join(
        [
            _TOP,
            *_enum("dtype", "Element types of activations and weights.", types),
            _PACKED.format(base=PACKED_BASE),
            *_enum(
                "requant_kind",
                "How an accumulator becomes an output: docs/arithmetic.md.",
                [(kind.value, kind.doc) for kind in KINDS],
            ),
            f"#define NPUC_REQUANT_KINDS {len(KINDS)}",
            "",
            "/* Whether a kind is in a set of kinds; -1, a layer without an output stage, is in none. */",
            "#define NPUC_KIND_IN(set, kind) ((unsigned)(kind) < NPUC_REQUANT_KINDS && ((set) >> (unsigned)(kind) & 1u))",
            *(
                f"#define NPUC_HAS_{name}(kind) NPUC_KIND_IN({masks[name]:#x}u, kind) /* whether a kind has {doc} */"
                for name, doc in has.items()
            ),
            "",
            *_enum(
                "rounding",
                "How a number between two integers is rounded.",
                [(r.value, r.doc) for r in ROUNDINGS],
            ),
            "#endif /* NPUC_KINDS_H */",
            "",
        ]
    )


def _enum(name: str, doc: str, members: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"/* {doc} */"
    yield f"typedef enum npuc_{name} {{"
    listed = list(members)
    for code, (member, words) in enumerate(listed):
        comma = "," if code < len(listed) - 1 else ""
        yield f"    NPUC_{member.upper()} = {code}{comma}" + (f" /* {words} */" if words else "")
    yield f"}} npuc_{name};"
    yield ""


def kinds_page(text: str) -> str:
    """docs/arithmetic.md with its table of kinds written again."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = ["| kind | `rq(acc)` | bits of `m` | what it is |", "|---|---|---|---|"]
    for kind in KINDS:
        bits = {None: "31, 15, 7", 0: "–"}.get(kind.multiplier_bits, str(kind.multiplier_bits))
        rows.append(f"| `{kind}` | {kind.text} | {bits} | {kind.doc} |")
    older = ", ".join(f"`{kind.spelling}` is `{kind}`" for kind in KINDS if kind.spelling != kind)
    note = (
        f"Older names are read wherever a kind is: {older}. Programs in `.mlir` files are written with them, so that other\n"
        "versions of npuc read them, and fingerprints of targets are made of them."
    )
    return f"{head}{BEGIN}\n" + "\n".join([*rows, "", note]) + f"\n{END}{tail}"
