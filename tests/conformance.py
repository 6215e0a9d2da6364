"""ONNX's own backend suite through import, canonical form and the float engine, and the shared TensorFlow Lite models
against LiteRT: `make conformance`.

Every case is imported, optionally canonicalized, exported, run by ONNX Runtime, and compared with the expected outputs
at the suite's own tolerances. A case is excluded, with its reason, only where no result could be expected: string,
sequence and optional types, training operators, random results, and what ONNX Runtime itself cannot run or gets wrong.
An excluded case that passes all the same counts as passed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, TypeProto, numpy_helper

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import NpucError
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.frontend.onnx.fold import MAX_OPSET
from npuc.transform import canonicalize
from support.paths import SHARED

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
NEWEST_IR_VERSION = 13
"""The newest that ONNX Runtime loads; the suite is written with a newer one, which changes nothing in these models."""
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """One case of the suite with its data sets."""

    kind: str
    name: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Verdict:
    """passed, failed or excluded; `reason` says why not passed."""

    outcome: str
    reason: str = ""


def _decode(proto_bytes: bytes, info: onnx.ValueInfoProto) -> Any:
    if info.type.WhichOneof("value") != "tensor_type":
        return None
    return numpy_helper.to_array(TensorProto.FromString(proto_bytes))


def cases(kind: str) -> Iterator[Case]:
    """All cases of one kind."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind=kind)
    for test in sorted(loaded, key=lambda t: t.name):
        if test.model is not None:
            model, data = test.model, [(list(i), list(o)) for i, o in test.data_sets or []]
        else:
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            constants = {i.name for i in model.graph.initializer}
            inputs = [i for i in model.graph.input if i.name not in constants]
            data = []
            for sample in sorted(folder.glob("test_data_set_*")):
                ins = [
                    _decode((sample / f"input_{n}.pb").read_bytes(), info) for n, info in enumerate(inputs)
                ]
                outs = [
                    _decode((sample / f"output_{n}.pb").read_bytes(), i)
                    for n, i in enumerate(model.graph.output)
                ]
                data.append((ins, outs))
        yield Case(kind, test.name, model, data, test.rtol, test.atol)


def _inputs(case: Case, values: list[Any]) -> Arrays:
    constants = {i.name for i in case.model.graph.initializer}
    names = [i.name for i in case.model.graph.input if i.name not in constants]
    arrays = {}
    for name, value in zip(names, values, strict=False):
        if isinstance(value, TensorProto):
            value = numpy_helper.to_array(value)
        arrays[name] = value
    return arrays


def _same(actual: Any, expected: Any, case: Case) -> None:
    if isinstance(expected, TensorProto):
        expected = numpy_helper.to_array(expected)
    expected = np.asarray(expected)
    actual = np.asarray(actual)
    if actual.dtype != expected.dtype:
        raise AssertionError(f"type {actual.dtype} instead of {expected.dtype}")
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape} instead of {expected.shape}")
    if expected.dtype == np.object_:
        np.testing.assert_array_equal(actual, expected)
        return
    if expected.dtype.kind not in "fiubc":  # bfloat16, float8, int4 ...
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.atol, equal_nan=True)


def run_npuc(case: Case, canonical: bool) -> str:
    """Empty if npuc gives the expected outputs, else what went wrong."""
    outputs = [o.name for o in case.model.graph.output]
    try:
        for values, expected in case.data:
            arrays = _inputs(case, values)
            shapes = {name: tuple(np.shape(array)) for name, array in arrays.items() if array is not None}
            graph = import_onnx(case.model, ImportOptions(input_shapes=shapes))
            if canonical:
                graph = canonicalize(graph)
            results = FloatEngine(graph, threads=1).run(arrays)
            for name, value in zip(outputs, expected, strict=True):
                _same(results[name], value, case)
    except (NpucError, AssertionError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {' '.join(lines[:6])[:300]}"
    except Exception as error:  # a bug of ours, shown as a failure
        return f"BUG {type(error).__name__}: {str(error)[:300]}"
    return ""


def _odd_type(kind: TypeProto) -> str:
    value = kind.WhichOneof("value")
    if value == "tensor_type":
        return "string type" if kind.tensor_type.elem_type == TensorProto.STRING else ""
    return {"sequence_type": "sequence type", "optional_type": "optional type", "map_type": "map type"}.get(
        str(value), ""
    )


_STRING_OPS = {
    "StringNormalizer",
    "StringConcat",
    "StringSplit",
    "RegexFullMatch",
    "TfIdfVectorizer",
    "LabelEncoder",
}


def exclusion(case: Case) -> str:
    """Why no result can be expected for a case; empty if one can."""
    graph = case.model.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        odd = _odd_type(info.type)
        if odd:
            return odd
    for node in graph.node:
        if node.domain == "ai.onnx.preview.training":
            return "training operator"
        if node.op_type.startswith(("Sequence", "Optional", "SplitToSequence", "ConcatFromSequence")):
            return "sequence or optional type"
        if node.op_type in _STRING_OPS:
            return "string type"
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, NEWEST_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    newest = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if newest > MAX_OPSET:
            return f"ONNX Runtime has no opset {newest}"
        return f"ONNX Runtime cannot load it: {_short(error)}"
    for values, expected in case.data:
        try:
            results = session.run(None, _inputs(case, values))
        except Exception as error:
            return f"ONNX Runtime cannot run it: {_short(error)}"
        try:
            for actual, wanted in zip(results, expected, strict=True):
                _same(actual, wanted, case)
        except AssertionError:
            return "ONNX Runtime's own result differs from the expected one"
    return ""


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    for mark in ("Could not find an implementation for ", "is not a registered function/op"):
        if mark in text:
            return "no implementation" if mark.startswith("Could") else "operator not registered"
    return text.split(" : ")[-1][:80]


def judge(case: Case, canonical: bool) -> Verdict:
    """Run one case."""
    problem = run_npuc(case, canonical)
    if not problem:
        return Verdict("passed")
    reason = exclusion(case)
    return Verdict("excluded", reason) if reason else Verdict("failed", problem)


def tflite_section(count: int = 20) -> bool:
    """Print, for every shared TensorFlow Lite model, how it compares with LiteRT's reference kernels; True if all is well."""
    from support.judges.litert_models import FLOAT, INTEGER, Judged, float_twin

    folder = SHARED / "models" / "tflite"
    print("\nTensorFlow Lite against LiteRT's reference kernels")
    if not folder.is_dir():
        print("  the shared models are not here")
        return True
    print(
        f"  {'model':28} {'ops':>4} {'integer':>8} {'inputs':>7} {'outputs':>8} {'same bits':>10} {'worst cosine':>13}"
    )
    well = True
    for name in (*INTEGER, *FLOAT):
        path = folder / f"{name}.tflite"
        twin = float_twin(path) if name == "kws_float" else None
        judged = Judged(path).run(SHARED, count, twin)
        integers = judged.integer.outcome.integer if name in INTEGER else 0
        print(
            f"  {name:28} {judged.operators:4} {integers:8} {judged.inputs:7} {judged.compared:8} {judged.equal:10}"
            f" {judged.cosine:13.7f}{'  (its weights as float)' if twin else ''}"
        )
        well &= judged.equal == judged.compared if name in INTEGER else judged.cosine >= 0.99999
    return well


def tflite_export_section(examples: int = 100) -> bool:
    """Print, for every op of the TFLite exporter, how many drawn networks gave LiteRT's bits; True if all did."""
    from support.judges.litert_draws import conformance

    print("\nDrawn one-op networks, exported, against LiteRT's reference kernels")
    found = conformance(examples)
    for name, (networks, outputs, wrong) in found.items():
        print(f"  {name:28} {networks:5} networks {outputs:8} outputs {wrong or 'all bits equal'}")
    networks, outputs = (sum(entry[i] for entry in found.values()) for i in (0, 1))
    print(f"  {'all':28} {networks:5} networks {outputs:8} outputs")
    return not any(wrong for _, _, wrong in found.values())


def main() -> int:
    """Print the counts, every exclusion with its reason, and every failure; status 1 below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    parser.add_argument("--no-canonical", action="store_true", help="only without canonical form")
    parser.add_argument("--canonical", action="store_true", help="only with canonical form")
    parser.add_argument("--verbose", action="store_true", help="list every excluded case")
    arguments = parser.parse_args()
    modes = [True, False]
    if arguments.canonical or arguments.no_canonical:
        modes = [arguments.canonical]
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    start = time.perf_counter()
    verdicts: dict[bool, dict[str, Verdict]] = {mode: {} for mode in modes}
    kinds: dict[str, str] = {}
    for kind in KINDS:
        for case in cases(kind):
            if arguments.only in case.name:
                kinds[case.name] = kind
                for mode in modes:
                    verdicts[mode][case.name] = judge(case, mode)
    status = 0
    for mode in modes:
        found = verdicts[mode]
        print(f"\ncanonical form {'on' if mode else 'off'}")
        for kind in KINDS:
            count = Counter(v.outcome for name, v in found.items() if kinds[name] == kind)
            print(
                f"  {kind:18} {count['passed']:5} passed {count['failed']:5} failed {count['excluded']:5} excluded"
            )
        total = Counter(v.outcome for v in found.values())
        counted = max(1, total["passed"] + total["failed"])
        share, out = total["passed"] / counted, total["excluded"] / max(1, len(found))
        print(
            f"  {'all':18} {total['passed']:5} passed {total['failed']:5} failed {total['excluded']:5} excluded"
        )
        print(f"  {share:.2%} of the cases that count pass; {out:.2%} of the suite is excluded")
        reasons = Counter(v.reason for v in found.values() if v.outcome == "excluded")
        for reason, number in reasons.most_common():
            print(f"    excluded {number:4}: {reason}")
            if arguments.verbose:
                for name, verdict in found.items():
                    if verdict.reason == reason and verdict.outcome == "excluded":
                        print(f"        {name}")
        for name, verdict in found.items():
            if verdict.outcome == "failed":
                print(f"    FAILED {name}: {verdict.reason}")
        status |= share < 0.97 or out >= 0.2
    if len(modes) == 2:
        differ = [n for n in kinds if verdicts[True][n].outcome != verdicts[False][n].outcome]
        print(f"\nverdicts that differ between the two: {len(differ)} {' '.join(differ[:20])}")
        status |= bool(differ)
    if not arguments.only:
        status |= not tflite_section()
        status |= not tflite_export_section()
    print(f"{time.perf_counter() - start:.0f} s")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
