"""Exported C applications build without a warning, have Python's bits, are clean under sanitizers, and say what is wrong."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from c_proof import VARIANTS, Workshop
from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions
from npuc.codegen.host_ops.builder import refused
from npuc.deploy.c import export_c
from npuc.errors import ExportError, InputDataError, OutputError
from npuc.frontend.options import ImportOptions
from npuc.images.loading import load_image
from npuc.program.combine import combine
from npuc.program.file import compiled_bytes, load_compiled, save_compiled, sign_compiled
from npuc.program.model import CompiledModel, CpuSubgraph
from npuc.sim import Simulator
from npuc.target import Target
from support.programs.c_applications import (
    CHECKS,
    IMAGE,
    STRICT,
    TARGET,
    build,
    compiled,
    image_network,
    run,
    surroundings,
)
from support.programs.files import sealed
from support.programs.keys import write_keys

HERE = Path(__file__).parent


def exported(model: CompiledModel, folder: Path, *, standalone: bool = False) -> Path:
    save_compiled(model, folder / "model.npu")
    file = (folder / "model.npu").read_bytes()
    export_c(load_compiled(folder / "model.npu"), file, folder / "app", standalone=standalone)
    return folder / "app"


@pytest.fixture(scope="module")
def digits(root: Path) -> CompiledModel:
    return compiled(root / "examples/digits.onnx")


@pytest.fixture(scope="module")
def on_cpu(root: Path) -> CompiledModel:
    """The digits with a layer in the middle on the CPU."""
    options = CompileOptions(devices={"pool": "cpu"}, island_threshold=0)
    return compiled(root / "examples/digits.onnx", compile_options=options)


@pytest.fixture(scope="module")
def compressed(root: Path) -> CompiledModel:
    """The digits for a machine with a weight decoder that looks at neighbours."""
    data = TARGET.to_dict()
    data["memory"] |= {"weight_decoder": "16B/cycle", "weight_contexts": 16}
    made = compiled(root / "examples/digits.onnx", target=Target.from_dict(data))
    assert made.weights.size < compiled(root / "examples/digits.onnx").weights.size
    return made


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    path = image_network(tmp_path_factory.mktemp("onnx") / "images.onnx")
    return compiled(path, ImportOptions(preprocess={"image": IMAGE}))


@pytest.fixture(scope="module")
def checked(digits: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits application with address and undefined-behaviour checks."""
    folder = exported(digits, tmp_path_factory.mktemp("digits"))
    # `make sanitize` is for the kernels; with checks, these two take longer to compile than all the rest.
    build(folder, *(f"build/runtime/src/gemm_{name}.o" for name in ("avx2", "avx512")))
    build(folder, CFLAGS=CHECKS, LDFLAGS="-fsanitize=address,undefined")
    return folder


@pytest.fixture(scope="module")
def application(images: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The application of the network for images."""
    folder = exported(images, tmp_path_factory.mktemp("images"))
    build(folder)
    return folder


def outputs_of(model: CompiledModel, inputs: dict[str, np.ndarray]) -> bytes:
    found = Simulator(model).run(inputs)
    return b"".join(found[name].tobytes() for name in model.outputs)


def test_the_sample_has_pythons_bits(checked: Path, digits: CompiledModel, tmp_path: Path) -> None:
    status, said = run(checked, "-o", tmp_path / "out.bin", "sample")
    assert status == 0 and "all outputs have the expected bits" in said
    expected = outputs_of(digits, random_inputs(interface_of(digits)))
    assert (tmp_path / "out.bin").read_bytes() == expected == (checked / "sample/output0.bin").read_bytes()
    scores = np.frombuffer(expected, np.float32)
    lines = [line.split() for line in said.splitlines() if line.startswith("  ")]
    assert [int(line[1]) for line in lines] == np.argsort(-scores, kind="stable")[:5].tolist()


def test_other_tensors_and_threads_have_pythons_bits(
    application: Path, images: CompiledModel, tmp_path: Path
) -> None:
    for seed in range(3):
        inputs = random_inputs(interface_of(images), seed)
        (tmp_path / "x.bin").write_bytes(inputs["image"].tobytes())
        status, said = run(application, "-t", str(1 + seed), "-o", tmp_path / "out.bin", tmp_path / "x.bin")
        assert status == 0, said
        assert (tmp_path / "out.bin").read_bytes() == outputs_of(images, inputs)


def test_an_image_has_pythons_bits(application: Path, images: CompiledModel, tmp_path: Path) -> None:
    assert run(application, "sample")[0] == 0
    pixels = np.random.default_rng(1).integers(0, 256, (37, 51, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.ppm")
    status, said = run(application, "-o", tmp_path / "out.bin", tmp_path / "x.ppm")
    assert status == 0, said
    tensor = load_image(tmp_path / "x.ppm", IMAGE, (1, 3, 20, 24))
    assert (tmp_path / "out.bin").read_bytes() == outputs_of(images, {"image": tensor})


def test_layers_on_the_cpu_run_too(checked: Path, on_cpu: CompiledModel, tmp_path: Path) -> None:
    save_compiled(on_cpu, tmp_path / "cpu.npu")
    inputs = random_inputs(interface_of(on_cpu))
    inputs["image"].tofile(tmp_path / "x.bin")
    status, said = run(checked, "-m", tmp_path / "cpu.npu", "-o", tmp_path / "y.bin", tmp_path / "x.bin")
    assert status == 0, said
    assert (tmp_path / "y.bin").read_bytes() == Simulator(on_cpu).run(inputs)["logits"].tobytes()


def test_wrong_bits_are_noticed(checked: Path, tmp_path: Path) -> None:
    shutil.copytree(checked / "sample", tmp_path / "sample")
    expected = bytearray((tmp_path / "sample/output0.bin").read_bytes())
    expected[5] ^= 1
    (tmp_path / "sample/output0.bin").write_bytes(expected)
    status, said = run(checked, tmp_path / "sample")
    assert status == 1 and "'logits' does not have the expected bits" in said


def test_errors_are_said_in_words(checked: Path, on_cpu: CompiledModel, tmp_path: Path) -> None:
    whole = (checked / "model.npu").read_bytes()
    (tmp_path / "half.npu").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.npu").write_bytes(b"")
    (tmp_path / "short.bin").write_bytes(bytes(255))
    (tmp_path / "long.bin").write_bytes(bytes(257))
    (tmp_path / "x.pgm").write_bytes(b"P5 8 8 255\n" + bytes(64))
    (number,) = (k for k, part in enumerate(on_cpu.subgraphs) if isinstance(part, CpuSubgraph))
    for name, host in (
        ("old", b""),
        ("cpu", refused("Loop of the layer 'pool': C has no such operator").encoded()),
    ):
        parts = list(on_cpu.subgraphs)
        parts[number] = replace(parts[number], host=host)
        save_compiled(replace(on_cpu, subgraphs=tuple(parts)), tmp_path / f"{name}.npu")
    for arguments, words in [
        (["-m", "missing.npu", "sample"], "cannot be opened: No such file"),
        (["-m", tmp_path / "half.npu", "sample"], "not a sound .npu file"),
        (["-m", tmp_path / "empty.npu", "sample"], "is empty"),
        (
            ["-m", tmp_path / "old.npu", "sample"],
            "it was compiled by an older npuc. Compile the network again",
        ),
        (
            ["-m", tmp_path / "cpu.npu", "sample"],
            "and this runtime cannot: Loop of the layer 'pool': C has no such",
        ),
        ([tmp_path / "short.bin"], "does not have the size of the tensor (input 'image' has 256 bytes)"),
        ([tmp_path / "long.bin"], "does not have the size of the tensor (input 'image' has 256 bytes)"),
        ([tmp_path / "missing.bin"], "the file cannot be opened (input 'image' has 256 bytes)"),
        ([tmp_path / "x.pgm"], "no preprocessing for images"),
        (["a.bin", "b.bin"], "takes 1 input, and 2 are given"),
        (["sample", "-p", "2"], "-p: options stand before the inputs"),
        (["-p", "many", "sample"], "-p: the number of runs is 1 or more"),
        (["-e", "batch", "sample"], "one entry, which has no name"),
        (["-t", "0", "sample"], "1 to 64 threads"),
        (["-o", tmp_path / "no/out.bin", "sample"], "cannot be written"),
        ([], "usage"),
        (["-x", "1", "sample"], "-x: there is no such option\nusage"),
    ]:
        status, said = run(checked, *arguments)
        assert status == 2 and words in said, (arguments, said)
    for name, words in (("old", "an older npuc compiled it"), ("cpu", "Loop of the layer 'pool'")):
        with pytest.raises(ExportError, match=words):
            export_c(load_compiled(tmp_path / f"{name}.npu"), b"", tmp_path / "app")
        assert not (tmp_path / "app").exists()


def test_damaged_weights_never_run(checked: Path, digits: CompiledModel, tmp_path: Path) -> None:
    """Weights are compared with their checksums by the first run, not at load."""
    more = np.zeros(1 << 20, np.uint8)
    more[: digits.weights.size] = digits.weights
    segments = (replace(digits.segments[0], size=more.size), *digits.segments[1:])
    path = tmp_path / "large.npu"
    save_compiled(replace(digits, weights=more, segments=segments), path)
    assert run(checked, "-m", path, "sample")[0] == 0
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    status, said = run(checked, "-m", path, "sample")
    assert status == 2 and "its checksum is wrong" in said and "expected bits" not in said


def test_damaged_images_are_refused(application: Path, tmp_path: Path) -> None:
    for content, words in [
        (b"P3 1 1 255\n0 0 0", "not a BMP, a binary PPM"),
        (b"P6 2 2 255\n" + bytes(11), "ends too early"),
        (b"P6 0 2 255\n", "impossible size"),
        (b"P6 99999 99999 255\n", "impossible size"),
        (b"P6 # no size", "impossible size"),
        (b"P6 1 1 65535\n" + bytes(6), "8 bits"),
        (b"", "not a BMP, a binary PPM"),
    ]:
        (tmp_path / "x.ppm").write_bytes(content)
        status, said = run(application, tmp_path / "x.ppm")
        assert status == 2 and words in said, (content, said)


def test_the_c_and_cpp_interfaces(checked: Path, root: Path, tmp_path: Path) -> None:
    objects = sorted(map(str, (checked / "build/runtime/src").glob("*.o")))
    flags = [*STRICT.split(), *CHECKS.split(), f"-I{root / 'native/include'}"]
    for compiler, standard, source in (
        ("gcc", "-std=c11", HERE / "c_api.c"),
        ("g++", "-std=c++17", HERE / "cpp_api.cpp"),
    ):
        program = tmp_path / source.stem
        command = [compiler, standard, *flags, str(source), *objects, "-lm", "-lpthread", "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, env=surroundings())
        assert done.returncode == 0, done.stderr[-3000:]
        sample = [checked / "sample/input0.bin", checked / "sample/output0.bin"]
        status, said = run(tmp_path, checked / "model.npu", *sample, program=str(program))
        assert status == 0, said


def test_entries_of_a_program(checked: Path, digits: CompiledModel, root: Path, tmp_path: Path) -> None:
    batch = compiled(root / "examples/digits.onnx", ImportOptions(input_shapes={"image": (3, 1, 8, 8)}))
    save_compiled(combine({"single": digits, "batch": batch}).entries, tmp_path / "both.npu")
    image = np.random.default_rng(1).uniform(-1, 1, (3, 1, 8, 8)).astype(np.float32)
    image.tofile(tmp_path / "input.bin")
    Simulator(batch).run({"image": image})["logits"].tofile(tmp_path / "batch.bin")
    single = Simulator(digits)
    rows = [single.run({"image": image[row : row + 1]})["logits"] for row in range(3)]
    np.concatenate(rows).tofile(tmp_path / "single.bin")
    objects = sorted(map(str, (checked / "build/runtime/src").glob("*.o")))
    command = ["gcc", "-std=c11", *STRICT.split(), *CHECKS.split(), f"-I{root / 'native/include'}"]
    command += [str(HERE / "c_entries.c"), *objects, "-lm", "-lpthread", "-o", str(tmp_path / "c_entries")]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0, done.stderr[-3000:]
    status, said = run(
        tmp_path, "both.npu", "input.bin", "batch.bin", "single.bin", "3", program="./c_entries"
    )
    assert status == 0, said


@pytest.fixture(scope="module")
def both(digits: CompiledModel, root: Path) -> dict[str, CompiledModel]:
    """The digits for one image and, as another entry, for three."""
    batch = compiled(root / "examples/digits.onnx", ImportOptions(input_shapes={"image": (3, 1, 8, 8)}))
    return combine({"single": digits, 'three "images"': batch}).entries


def test_an_application_runs_any_entry(
    both: dict[str, CompiledModel], workshop: Workshop, tmp_path: Path
) -> None:
    file = compiled_bytes(both)
    sample = {"image": np.random.default_rng(1).uniform(-1, 1, (3, 1, 8, 8)).astype(np.float32)}
    export_c(both, file, tmp_path / "hosted", sample)
    build(tmp_path / "hosted")
    expected = outputs_of(both['three "images"'], sample)
    for arguments in (["sample1"], ["-e", 'three "images"', "sample1/input0.bin"]):
        status, said = run(tmp_path / "hosted", "-o", "out.bin", *arguments)
        assert status == 0 and (tmp_path / "hosted/out.bin").read_bytes() == expected, said
    assert run(tmp_path / "hosted", "sample")[0] == 0
    for arguments, words in (
        (["-e", "large", "sample"], "no entry 'large'; it has 'single', "),
        (["-e", "single", "sample1"], "does not have the size of the tensor (input 'image' has 256 bytes)"),
        (["-k", "12", "sample"], "64 hexadecimal digits"),
        (["-k", "d7" * 32, "sample"], "it is not signed"),
        (["-k", "00" * 32, "sample"], "no public key of Ed25519"),
    ):
        status, said = run(tmp_path / "hosted", *arguments)
        assert status == 2 and words in said, (arguments, said)
    export_c(both, file, tmp_path / "standalone", sample, standalone=True)
    workshop.prove(tmp_path / "standalone", "standalone", VARIANTS["checks"])
    said = run(tmp_path / "standalone")[1]
    assert "entry single\n" in said and 'entry three "images"\n' in said
    with pytest.raises(InputDataError, match="no entry of the program takes"):
        export_c(both, file, tmp_path / "none", {"image": np.zeros((2, 1, 8, 8), np.float32)})


def test_a_signature_is_verified_in_c(
    checked: Path, both: dict[str, CompiledModel], root: Path, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    private, _ = write_keys(tmp_path, 1)
    save_compiled(both, tmp_path / "plain.npu")
    key = sign_compiled(tmp_path / "plain.npu", private, tmp_path / "signed.npu")
    sample = checked / "sample"
    assert run(checked, "-m", tmp_path / "signed.npu", "-k", key.hex(), sample)[0] == 0
    data = (tmp_path / "signed.npu").read_bytes()
    place = data.index(key)
    rng = np.random.default_rng(2)
    for at in (place, place + 32, place + 95, *rng.integers(4096, len(data) - 4096, 6).tolist()):
        changed = bytearray(data)
        changed[at] ^= 1
        (tmp_path / "changed.npu").write_bytes(sealed(changed))
        status, said = run(checked, "-m", tmp_path / "changed.npu", "-k", key.hex(), sample)
        assert status == 2 and ("signed" in said or "not a sound" in said), (at, said)
    for path, given, words in (
        ("signed.npu", "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "by another key"),
        ("plain.npu", key.hex(), "it is not signed"),
    ):
        status, said = run(checked, "-m", tmp_path / path, "-k", given, sample)
        assert status == 2 and words in said
    objects = sorted(map(str, (checked / "build/runtime/src").glob("*.o")))
    command = ["g++", "-std=c++17", *STRICT.split(), *CHECKS.split(), f"-I{root / 'native/include'}"]
    command += [str(HERE / "cpp_entries.cpp"), *objects, "-lm", "-lpthread", "-o", str(tmp_path / "entries")]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0, done.stderr[-3000:]
    status, said = run(tmp_path, "signed.npu", key.hex(), 'three "images"', "3", program="./entries")
    assert status == 0, said


def test_the_c_interface_under_load(checked: Path, root: Path, tmp_path: Path) -> None:
    """Eight threads on one model and fifty models; `make tsan` runs the same with race checks."""
    objects = sorted(map(str, (checked / "build/runtime/src").glob("*.o")))
    command = ["gcc", "-std=c11", *STRICT.split(), *CHECKS.split(), f"-I{root / 'native/include'}"]
    command += [str(HERE / "c_load.c"), *objects, "-lm", "-lpthread", "-o", str(tmp_path / "c_load")]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0, done.stderr[-3000:]
    sample = [checked / "sample/input0.bin", checked / "sample/output0.bin"]
    status, said = run(tmp_path, checked / "model.npu", *sample, "8", "100", "50", program="./c_load")
    assert status == 0 and "none was lost" in said, said


def test_every_allocation_may_fail(checked: Path, root: Path, tmp_path: Path) -> None:
    objects = sorted(map(str, (checked / "build/runtime/src").glob("*.o")))
    wrapped = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc")]
    command = ["gcc", "-std=c11", *STRICT.split(), *CHECKS.split(), f"-I{root / 'native/include'}"]
    command += [
        str(HERE / "c_memory.c"),
        *objects,
        *wrapped,
        "-lm",
        "-lpthread",
        "-o",
        str(tmp_path / "c_memory"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0, done.stderr[-3000:]
    sample = [checked / "sample/input0.bin", checked / "sample/output0.bin"]
    status, said = run(tmp_path, checked / "model.npu", *sample, program="./c_memory")
    assert status == 0, said
    # Of loading, a run, a second context, a job, and the scratch of their threads.
    assert int(said.split()[0]) > 50, said


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("objects"))


@pytest.mark.parametrize("which", ["digits", "images", "compressed", "on_cpu"])
def test_the_standalone_form_calls_no_allocator(
    which: str, workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = exported(request.getfixturevalue(which), tmp_path, standalone=True)
    workshop.no_allocator(folder)
    arena = int((folder / "data.h").read_text().split("ARENA_BYTES ")[1].split()[0])
    assert arena < TARGET.memory.local.size + 200_000


@pytest.mark.parametrize("way", ["clang", "checks", "valgrind"])
def test_the_standalone_form_is_clean(
    way: str, workshop: Workshop, digits: CompiledModel, tmp_path: Path
) -> None:
    variant = VARIANTS[way]
    if variant.missing:
        pytest.skip(f"{variant.missing} is not installed")
    workshop.prove(exported(digits, tmp_path, standalone=True), "standalone", variant)


def test_valgrind_finds_nothing(application: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    status, said = run(application, *VARIANTS["valgrind"].before[1:], "./app", "sample", program="valgrind")
    assert status == 0 and "all outputs have the expected bits" in said, said


def test_clang_builds_it_too(digits: CompiledModel, tmp_path: Path) -> None:
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    folder = exported(digits, tmp_path)
    build(folder, CC=clang)
    assert run(folder, "sample")[0] == 0


def test_the_same_model_gives_the_same_files(digits: CompiledModel, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_c(digits, b"model", tmp_path / name)
    first = {path.relative_to(tmp_path / "a"): path.read_bytes() for path in (tmp_path / "a").rglob("*.*")}
    second = {path.relative_to(tmp_path / "b"): path.read_bytes() for path in (tmp_path / "b").rglob("*.*")}
    assert first == second and Path("runtime/include/npu.h") in first


def test_folders_and_samples_that_do_not_fit_are_refused(digits: CompiledModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(OutputError):
            export_c(digits, b"", folder)
    with pytest.raises(InputDataError, match="no tensor 'image'"):
        export_c(digits, b"", tmp_path / "new", {"other": np.zeros(1)})
    with pytest.raises(InputDataError, match="shape"):
        export_c(digits, b"", tmp_path / "new", {"image": np.zeros(1, np.float32)})
    assert not (tmp_path / "new").exists()
