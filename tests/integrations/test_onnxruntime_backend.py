"""ONNX's own backend suite through the provider: with a target that has floats, and without ranges."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import onnx
import pytest

import conformance
from npuc.errors import UsageError
from npuc.integrations import onnxruntime as provider

ort = pytest.importorskip("onnxruntime", minversion="1.23.1")
pytestmark = pytest.mark.slow
FLOATS = {"target": "bm1684x-like", "scheme": "f32", "level": "0", "cache": "off"}
NO_RANGES = {"level": "0", "cache": "off"}


def outcome(case: conformance.Case, options: dict[str, str]) -> tuple[str, Any]:
    """What is wrong with a session's results, empty if nothing is; and its report."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, conformance.NEWEST_IR_VERSION)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    report = None
    try:
        session = provider.session(model.SerializeToString(), options, settings)
        with suppress(UsageError):  # ONNX Runtime folded everything: there was nothing to compile
            report = provider.report(session)
        for values, expected in case.data:
            results = session.run(None, conformance._inputs(case, values))
            for actual, wanted in zip(results, expected, strict=True):
                conformance._same(actual, wanted, case)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", report
    return "", report


@pytest.mark.parametrize("options", [FLOATS, NO_RANGES], ids=["floats", "no-ranges"])
@pytest.mark.parametrize("kind", conformance.KINDS)
def test_no_case_is_wrong(kind: str, options: dict[str, str]) -> None:
    wrong: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for number, case in enumerate(conformance.cases(kind)):
        if (options is NO_RANGES and number % 8) or conformance.exclusion(case):
            continue
        words, report = outcome(case, options)
        counts["cases"] += 1
        counts["with the NPU"] += bool(report is not None and report.graphs)
        if words:
            wrong[case.name] = words
    print(f"{kind}: {json.dumps(counts)}")
    assert not wrong, json.dumps(wrong, indent=1)
    assert counts["cases"]
    assert options is NO_RANGES or counts["with the NPU"] > counts["cases"] // 10
