"""64 bits that say whether a compiled program belongs to a machine.

The hash of a canonical JSON text of everything that can change a program: quantities are turned into one unit (bytes,
cycles, fractions), expressions into their canonical form, mappings are sorted. Names, descriptions, the sentences of
limits, and what nothing refers to are left out.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from npuc.arithmetic.kinds import Kind

if TYPE_CHECKING:
    from npuc.target.model import Target

SCHEMA = 1
"""Raised when a field gets a new meaning."""


def fingerprint_of(target: Target) -> int:
    """The fingerprint."""
    text = json.dumps(canonical(target), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=8, person=b"npuc target").digest(), "big"
    )


def canonical(target: Target) -> dict[str, Any]:
    """What the fingerprint covers, as plain JSON data."""
    return {
        "schema": SCHEMA,
        "compute": _compute(target),
        "memory": _memory(target),
        "arithmetic": _arithmetic(target),
        "limits": _limits(target),
        **({"instruction_set": target.instruction_set} if target.instruction_set != "npuc" else {}),
    }


def _arithmetic(target: Target) -> dict[str, Any]:
    data: dict[str, Any] = target.model_dump(mode="json", include={"arithmetic"})["arithmetic"]
    # Kinds were renamed; their older names stay here, so that programs compiled before still belong to their machine.
    data["requantization"]["kinds"] = [Kind(kind).spelling for kind in target.arithmetic.requantization.kinds]
    return data


def _compute(target: Target) -> dict[str, Any]:
    compute, arithmetic = target.compute, target.arithmetic
    data: dict[str, Any] = target.model_dump(mode="json", include={"compute"})["compute"]
    data["clock"] = compute.clock
    if compute.sparsity is None:
        del data["sparsity"]
    else:
        data["sparsity"] = sorted(map(str, compute.sparsity))
    # Rates of types that the machine does not have are left over from a target that it extends.
    data["array"]["rates"] = {
        activation: {
            weight: str(rate) for weight, rate in row.items() if weight in arithmetic.weights.formats
        }
        for activation, row in compute.array.rates.items()
        if activation in arithmetic.activations.formats
    }
    return data


def _memory(target: Target) -> dict[str, Any]:
    local, shared, dram = target.memory.local, target.memory.shared, target.memory.dram
    clock, decoder = target.compute.clock, target.memory.weight_decoder
    contexts = target.memory.weight_contexts
    return {
        **({"weight_decoder": str(decoder.bytes_per_cycle(clock))} if decoder is not None else {}),
        **({"weight_contexts": contexts} if contexts is not None else {}),
        "local": [local.size, local.banks, local.alignment],
        "shared": [shared.size, str(shared.bandwidth.bytes_per_cycle(clock))] if shared else None,
        "dram": [str(dram.bandwidth.bytes_per_cycle(clock)), dram.latency.cycles(clock), dram.burst],
    }


def _limits(target: Target) -> dict[str, Any]:
    limits = target.limits
    expressions = [rule.require for rules in limits.rules.values() for rule in rules.values()]
    expressions += [e for rewrite in limits.rewrites.values() for e in rewrite.parameters.values()]
    used = frozenset[str]().union(*(expression.names for expression in expressions))
    return {
        "ops": "all" if limits.ops == "all" else sorted(limits.ops),
        "unsupported": sorted(limits.unsupported),
        "constants": {name: str(value) for name, value in limits.constants.items() if name in used},
        # A rule's name only serves to override it.
        "rules": {
            op: sorted(rule.require.canonical for rule in rules.values())
            for op, rules in limits.rules.items()
            if rules
        },
        "rewrites": {
            op: [rewrite.to, {name: e.canonical for name, e in rewrite.parameters.items()}]
            for op, rewrite in limits.rewrites.items()
        },
        "fused": {op: sorted(names) for op, names in limits.fused.items()},
        **({"activation_forms": sorted(limits.activation_forms)} if limits.activation_forms else {}),
    }
