"""Whole evaluations: every form of a model, every way to run it, and runs that are killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.sources import open_data
from npuc.engine import FloatEngine
from npuc.errors import EvaluationDataError, FileFormatError, InternalError, MissingExtraError, UsageError
from npuc.evaluate import Confidence, EvaluationReport, evaluate
from npuc.flow import compile_network, quantize_on_data
from npuc.ir import save_graph
from npuc.program.file import save_compiled
from npuc.target import load_target
from support.evaluation import data_set, network
from support.paths import TESTS

SCALE: dict[str, Any] = {"scale": (1 / 64,), "mean": (128.0,)}
METRICS = ["top1", "auc:score=class", "cosine", "sqnr"]


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A network as a float program, an integer program and a compiled model."""
    folder = tmp_path_factory.mktemp("forms")
    graph = network()
    samples = list(np.random.default_rng(0).uniform(-2, 2, (16, 1, 3, 8, 8)).astype(np.float32))
    quantized, _ = quantize_on_data(graph, open_data(graph, samples), threads=1)
    compiled = compile_network(quantized.graph, load_target("edge-1t"))
    save_graph(graph, folder / "float.mlir")
    save_graph(quantized.graph, folder / "integer.mlir")
    save_compiled(compiled.model, folder / "compiled.npu")
    return [folder / "float.mlir", folder / "integer.mlir", folder / "compiled.npu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_set(tmp_path_factory.mktemp("data") / "set")


def _same(a: EvaluationReport, b: EvaluationReport) -> None:
    assert a.figures == b.figures and a.samples == b.samples


def test_all_forms_side_by_side(forms: list[Path], data: Path) -> None:
    report = evaluate(forms, data, ["top1", "cosine"], preprocess=SCALE)
    assert report.kinds == ("float", "integer", "compiled") and report.samples == 40
    top1, cosine = report.figures
    # The compiled model gives the bits of the integer program.
    assert top1.models[1].value == top1.models[2].value and cosine.models[1].value == cosine.models[2].value
    assert cosine.models[0].value == pytest.approx(1, abs=1e-12) and 0.9 < cosine.models[1].value < 1
    assert top1.models[0].difference is None and top1.models[1].difference is not None
    low, high = top1.models[0].interval or (0, 0)
    assert low < top1.models[0].value < high


def test_the_number_is_that_of_a_plain_loop(forms: list[Path], data: Path) -> None:
    from npuc.images.loading import load_image
    from npuc.images.preprocess import Preprocess
    from npuc.ir import load_graph

    engine = FloatEngine(load_graph(forms[0]), threads=1)
    right = 0
    for line in (data / "val.txt").read_text().splitlines():
        name, label = line.split()
        x = load_image(data / "val" / name, Preprocess(**SCALE), (1, 3, 8, 8))
        right += int(engine.run({"x": x})["scores"].argmax()) == int(label)
    assert evaluate(forms[0], data, ["top1"], preprocess=SCALE).value("top1") == right / 40


def test_batches_change_nothing(data: Path) -> None:
    one = evaluate(network(), data, ["top1", "patient"], preprocess=SCALE, max_count=21)
    many = evaluate(network(batch=3), data, ["top1", "patient"], preprocess=SCALE, max_count=21)
    assert one.value("top1") == many.value("top1")
    assert one.value("patient") == pytest.approx(many.value("patient"), rel=1e-6)


def test_preprocessing_comes_from_the_model_or_its_neighbour(data: Path, tmp_path: Path) -> None:
    from npuc.ir import Graph

    graph = network()
    with_own = Graph.empty(
        [(p.name, p.type) for p in graph.inputs], preprocess={"x": {"scale": [1 / 64], "mean": [128.0]}}
    )
    graph.function.arg_attrs = with_own.function.arg_attrs
    save_graph(graph, tmp_path / "own.mlir")
    save_graph(network(), tmp_path / "plain.mlir")
    wanted = evaluate(tmp_path / "plain.mlir", data, ["patient"], preprocess=SCALE).value("patient")
    report = evaluate([tmp_path / "plain.mlir", tmp_path / "own.mlir"], data, ["patient"])
    assert [one.value for one in report.figures[0].models] == [wanted, wanted]
    assert "images are prepared as" in report.notes[0]
    alone = evaluate(tmp_path / "plain.mlir", data, ["patient"])
    assert alone.value("patient") != wanted and "no preprocessing attached" in alone.notes[0]


def test_one_process_many_and_dask_give_the_same(forms: list[Path], data: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask's distributed is not installed")
    options: dict[str, Any] = {"preprocess": SCALE, "confidence": Confidence(draws=50)}
    metrics = ["top1", "patient", "cosine", "sqnr"]
    alone = evaluate(forms, data, metrics, **options)
    _same(alone, evaluate(forms, data, metrics, workers=2, **options))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        _same(alone, evaluate(forms, data, metrics, cluster=cluster.scheduler_address, **options))
        begin, killed = _killer(3, lambda: cluster.workers[0].process.pid)
        _same(
            alone, evaluate(forms, data, metrics, cluster=cluster.scheduler_address, begin=begin, **options)
        )
        assert killed


def _killer(after: int, victim: Callable[[], int]) -> tuple[Callable[[int], Callable[[], None]], list[int]]:
    """What kills a worker when some samples are done."""
    done, killed = [0], []

    def begin(total: int) -> Callable[[], None]:
        def step() -> None:
            done[0] += 1
            if done[0] == after:
                killed.append(victim())
                os.kill(killed[0], signal.SIGKILL)

        return step

    return begin, killed


def test_a_killed_worker_loses_nothing(forms: list[Path], data: Path) -> None:
    begin, killed = _killer(3, lambda: multiprocessing.active_children()[0].pid or 0)
    report = evaluate(forms[:1], data, ["top1", "patient"], preprocess=SCALE, workers=2, begin=begin)
    assert killed
    _same(report, evaluate(forms[:1], data, ["top1", "patient"], preprocess=SCALE))
    assert not multiprocessing.active_children()


def test_a_sample_that_kills_every_worker_is_named(forms: list[Path], data: Path) -> None:
    with pytest.raises(
        InternalError, match=r"3 worker processes died \(status -9\) on the samples from '008.png'"
    ):
        evaluate(forms[:1], data, ["deadly"], preprocess=SCALE, workers=1 + 1, max_count=16)


def test_an_error_of_a_worker_is_the_users(forms: list[Path], data: Path, tmp_path: Path) -> None:
    bad = data_set(tmp_path / "bad", 10)
    (bad / "val" / "007.png").write_bytes(b"no image")
    for workers in (1, 2):
        with pytest.raises(EvaluationDataError, match=r"007.png: cannot be decoded as an image") as caught:
            evaluate(forms[:1], bad, ["top1"], preprocess=SCALE, workers=workers)
        assert caught.value.fix
    report = evaluate(forms[:1], bad, ["top1"], preprocess=SCALE, skip_unreadable=True)
    assert report.samples == 9 and "007.png" in report.skipped[0]


def _script(path: Path, models: list[Path], data: Path, journal: Path) -> Path:
    path.write_text(
        f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import evaluation
from npuc.evaluate import evaluate
if __name__ == "__main__":
    report = evaluate({[str(m) for m in models]!r}, {str(data)!r}, ["top1", "slow"],
                      preprocess={SCALE!r}, resume={str(journal)!r}, workers=int(sys.argv[1]))
    print(report.resumed)
"""
    )
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on(forms: list[Path], data: Path, tmp_path: Path, workers: int) -> None:
    journal = tmp_path / "journal"
    script = _script(tmp_path / "run.py", forms[:1], data, journal)
    # Its own group, so that its workers end with it.
    process = subprocess.Popen([sys.executable, str(script), str(workers)], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 8) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    lines = journal.read_bytes().count(b"\n") - 1
    assert 8 <= lines < 40
    report = evaluate(forms[:1], data, ["top1", "slow"], preprocess=SCALE, resume=journal)
    # Samples are written in chunks of eight; the last one may be torn.
    assert report.resumed == lines - lines % 8
    _same(report, evaluate(forms[:1], data, ["top1", "slow"], preprocess=SCALE))
    again = evaluate(forms[:1], data, ["top1", "slow"], preprocess=SCALE, resume=journal)
    assert again.resumed == 40
    _same(again, report)


@pytest.fixture
def journal(forms: list[Path], data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=path, max_count=20)
    return path


def test_a_torn_last_line_is_dropped(forms: list[Path], data: Path, journal: Path) -> None:
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-7])
    report = evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=journal, max_count=20)
    assert report.resumed == 16
    assert json.loads(journal.read_text().splitlines()[-1])["sample"] == 19
    # A run that was killed when it had hardly begun.
    for length in (0, 10):
        journal.write_bytes(whole[:length])
        assert (
            evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=journal, max_count=20).resumed == 0
        )


def test_damage_is_named(forms: list[Path], data: Path, journal: Path) -> None:
    lines = journal.read_text().splitlines(keepends=True)
    for broken, words in (
        ([*lines[:3], "nonsense\n", *lines[4:]], "is damaged in line 4"),
        (
            [*lines[:3], lines[3].replace("1.0", "0.0").replace('"sample": 2', '"sample": 99')],
            "is damaged in line 4",
        ),
        (["[1, 2]\n", *lines[1:]], "is not a journal"),
        (["a text of mine\n"], "is not a journal"),
    ):
        journal.write_text("".join(broken))
        with pytest.raises(FileFormatError, match=words):
            evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=journal, max_count=20)
        assert journal.read_text() == "".join(broken)


def test_a_journal_of_another_run_is_refused(
    forms: list[Path], data: Path, journal: Path, tmp_path: Path
) -> None:
    before = journal.read_bytes()
    with pytest.raises(UsageError, match="other models"):
        evaluate(forms[1:2], data, ["top1"], preprocess=SCALE, resume=journal, max_count=20)
    with pytest.raises(UsageError, match="other options"):
        evaluate(forms[:1], data, ["top5"], preprocess=SCALE, resume=journal, max_count=20)
    with pytest.raises(UsageError, match="other options"):
        evaluate(forms[:1], data, ["top1"], resume=journal, max_count=20)
    with pytest.raises(UsageError, match="other samples"):
        evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=journal)
    with pytest.raises(UsageError, match="other data"):
        evaluate(forms[:1], data, ["top1"], preprocess=SCALE, resume=journal, max_count=20, seed=1)
    other = data_set(tmp_path / "other", 20)
    text = (other / "val.txt").read_text()
    (other / "val.txt").write_text(text.replace("000.png", "000.png "))
    assert evaluate(forms[:1], other, ["top1"], preprocess=SCALE, resume=journal).resumed == 20
    first = text.split("\n")[0]
    (other / "val.txt").write_text(text.replace(first, f"000.png {(int(first[-1]) + 1) % 5}"))
    with pytest.raises(UsageError, match="other data"):
        evaluate(forms[:1], other, ["top1"], preprocess=SCALE, resume=journal)
    assert journal.read_bytes() == before


def test_draws_are_seeded(data: Path) -> None:
    options: dict[str, Any] = {"preprocess": SCALE, "max_count": 16}
    found = [
        evaluate(network(), data, ["patient"], confidence=Confidence(draws=50, seed=seed), **options)
        for seed in (0, 0, 1)
    ]
    _same(found[0], found[1])
    assert found[0].figures != found[2].figures
    none = evaluate(network(), data, ["patient"], confidence=Confidence(draws=0), **options)
    assert none.figures[0].models[0].interval is None


def test_the_difference_of_a_model_from_itself_is_nothing(data: Path, tmp_path: Path) -> None:
    for name in ("a.mlir", "b.mlir"):
        save_graph(network(), tmp_path / name)
    report = evaluate(
        [tmp_path / "a.mlir", tmp_path / "b.mlir"], data, METRICS[:1] + METRICS[2:], preprocess=SCALE
    )
    for figure in report.figures:
        less = figure.models[1].difference
        assert less is not None and less.value == 0
        assert less.interval is not None and less.interval[0] <= 0 <= less.interval[1]
    assert report.figures[0].models[1].difference == replace(
        report.figures[0].models[1].difference, p_value=1.0
    )


def test_reference_outputs_of_a_file(tmp_path: Path) -> None:
    graph = network()
    x = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)
    engine = FloatEngine(graph, threads=1)
    wanted = np.concatenate([engine.run({"x": row[None]})["scores"] for row in x])
    np.savez(tmp_path / "data.npz", x=x, **{"output:scores": wanted})
    assert evaluate(graph, tmp_path / "data.npz").value("sqnr") == np.inf
    np.savez(tmp_path / "data.npz", x=x, **{"output:scores": wanted * 1.1})
    assert evaluate(graph, tmp_path / "data.npz").value("sqnr") == pytest.approx(20 * np.log10(11), abs=1e-4)


def test_a_long_run_takes_all_cores(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import npuc.evaluate.evaluation as evaluation
    from npuc.evaluate.plan import SampleWorker

    handed: list[int] = []

    def pretend(plan: Any, chunks: Any, workers: int) -> Any:
        handed.append(len(chunks))
        for first, part in chunks:
            yield first, SampleWorker(plan).run(part)

    monkeypatch.setattr(evaluation, "run_in_processes", pretend)
    monkeypatch.setattr(os, "sched_getaffinity", lambda which: {0, 1, 2})
    short = evaluate(network(), data, ["top1"], preprocess=SCALE, workers=None)
    assert not handed
    monkeypatch.setattr(evaluation, "_WORTH", 0.0)
    _same(short, evaluate(network(), data, ["top1"], preprocess=SCALE, workers=None))
    assert handed == [2]


def test_a_cluster_needs_its_extra(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'npuc\[cluster\]'"):
        evaluate(network(), data, ["top1"], preprocess=SCALE, cluster="tcp://127.0.0.1:9")


def test_a_journal_has_one_writer(data: Path, journal: Path) -> None:
    import fcntl

    with open(journal, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another run is writing"):
            evaluate(network(), data, ["top1"], preprocess=SCALE, resume=journal)


def test_a_cluster_that_is_not_there(data: Path) -> None:
    pytest.importorskip("distributed", reason="Dask's distributed is not installed")
    for address in ("tcp://127.0.0.1:9", "nonsense", "tcp://host:99999"):
        with pytest.raises(UsageError, match=f"cluster {address} cannot be reached.*tcp://host:8786"):
            evaluate(network(), data, ["top1"], preprocess=SCALE, cluster=address)


@pytest.mark.parametrize(
    "given",
    [{"workers": 2}, {"cluster": "here:1"}, {"resume": "j.jsonl"}, {"seed": 3}],
    ids=lambda given: next(iter(given)),
)
def test_one_sequence_runs_in_its_order_from_the_beginning(given: dict[str, Any]) -> None:
    (option,) = given
    with pytest.raises(
        UsageError,
        match=f"--stream runs the samples in their order from the first on, and --{option} does not",
    ):
        evaluate("net.onnx", "data", stream=True, **given)
