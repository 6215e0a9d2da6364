# Two commands need nothing but Python 3.11, gcc, make and pip:
#
#   make demo   set up, then import, show and run the bundled model
#   make test   set up, then run the whole suite
#
# Everything is installed in .venv, once: stamp files remember what is there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-warn-conflicts -c constraints.txt
STAMPS := $(VENV)/stamps
NATIVE := CMakeLists.txt $(wildcard native/include/*.h native/include/*.hpp native/include/npuc/*.h native/src/*.c native/src/*.h native/ort/*.c native/ort/*.h)

.PHONY: install-size bench-memory bench-runtime bench-frameworks bench-sim sweep zoo zoo-models sweep-zoo help demo test test-slow peers-tensorflow peers-openvino peers-qat peers-tpumlir test-tpumlir test-arm peers-sophgo test-sophgo bench-qdq test-frameworks test-browser test-site test-notebooks notebooks studio test-studio sanitize tsan prove-c fuzz soak mutate bench-kernels lint format conformance bench-import bench-calib bench-int bench-accuracy bench-default bench-rounding bench-schedule bench-explore bench-compression docs licences sbom site wheels release-check release-check-arm clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:
	@echo "first steps:"
	@echo "  make demo             set up, then import, show and run the bundled model"
	@echo "  make test             set up, then run the test suite"
	@echo "  make lint             ruff and mypy --strict"
	@echo "  make format           let ruff rewrite the sources"
	@echo "  make docs             write the generated pages again"
	@echo "  make clean            remove .venv, build outputs and caches"
	@echo "more tests:"
	@echo "  make test-slow        also the long sweeps"
	@echo "  make test-browser     the HTML pages in Chromium, which it installs by apt where it is missing; screenshots in build/artifacts"
	@echo "  make test-studio      the studio in Chromium, with its libraries"
	@echo "  make test-site        the built site in Chromium: axe-core on every page, search, no requests"
	@echo "  make test-notebooks   examples/*.ipynb executed in Jupyter's kernel"
	@echo "  make test-frameworks  the importers against TensorFlow and Keras, which it installs in build/peers/tensorflow (1.5 GB)"
	@echo "  make test-sophgo      programs for the BM1684X in its vendor's functional model, unpacked in build/peers/sophgo (0.3 GB to fetch)"
	@echo "  make test-tpumlir     tables and results exchanged with TPU-MLIR itself, installed in build/peers/tpumlir (1.9 GB, Python 3.10)"
	@echo "  make conformance      ONNX's own backend suite, with and without canonicalization; TFLite models against LiteRT"
	@echo "  make sanitize         the kernel tests on a build with address and undefined-behaviour checks and no warnings"
	@echo "  make test-arm         the kernels for 64-bit ARM: cross-compiled, run under qemu-aarch64, compared to the bit"
	@echo "  make tsan             the load tests, from Python and from C, on a build with race checks"
	@echo "  make prove-c          every shared model as a C application: gcc, clang, sanitizers, valgrind, no allocator"
	@echo "  make fuzz             MINUTES=10: readers of all formats under libFuzzer (C runtime, with sanitizers) and Atheris (Python); findings become tests"
	@echo "  make soak             JOBS=1000000: jobs over 8 threads and 2 processes, with cancels, timeouts and device faults; none lost, memory flat"
	@echo "  make mutate           COUNT=100: faults planted at random, by room; which share of them the tests notice"
	@echo "  make sweep            every model for every target: compiled, executed, compared to the bit, checked for races"
	@echo "  make zoo              networks x targets: accuracy, cycles, bound, bytes, memory, compile time; what has a result is kept; writes docs/zoo-figures.md"
	@echo "  make zoo-models       fetch and build the networks of benchmarks/zoo.yaml; timm and its like go to build/peers/zoo (1.8 GB)"
	@echo "  make sweep-zoo        these networks through import, quantization, two targets and the sanitizer, compared by slice"
	@echo "benchmarks:"
	@echo "  make bench-kernels    the integer kernels against ONNX Runtime, layer by layer"
	@echo "  make bench-import     import time and memory against onnxslim and onnx"
	@echo "  make bench-calib      calibration time and memory against onnxruntime.quantization"
	@echo "  make bench-int        integer networks against ONNX Runtime's int8 and float"
	@echo "  make bench-accuracy   accuracy after quantization against ONNX Runtime, NNCF, AIMET and Quark"
	@echo "  make bench-default    the default of quantization against plain ranges, by slice, on unseen data"
	@echo "  make bench-rounding   learned rounding of a network of ResNet-50's size, in seconds"
	@echo "  make bench-explore    10,000 machines explored, against the time of one compilation"
	@echo "  make bench-compression  the weight codec against conditional entropy, Vela's codec, zlib, lzma and zstd, layer by layer"
	@echo "  make bench-schedule   schedules against their lower bounds, and against Vela"
	@echo "  make bench-sim        instruction mode against graph mode"
	@echo "  make bench-qdq        exported QDQ files in ONNX Runtime, and in OpenVINO, which it installs in build/peers/openvino (0.3 GB)"
	@echo "  make bench-memory     the memory planner: public instances, and growth up to 10,000 buffers"
	@echo "  make bench-runtime    the runtime: overhead, throughput, load time"
	@echo "  make bench-frameworks npuc inside of other frameworks: overhead of a call, cold and warm start"
	@echo "  make install-size     what 'pip install .' takes on disk, in a fresh environment"
	@echo "release:"
	@echo "  make studio           the libraries of the page of npuc studio, fetched by npm"
	@echo "  make site             build/site/html: the documentation as a site (mkdocs-material in build/site/venv, a script from npm); warnings and dead links fail"
	@echo "  make notebooks        write examples/*.ipynb from the tutorials"
	@echo "  make licences         write docs/third-party.md, the licences of all that an installation brings"
	@echo "  make sbom             write build/npuc.cdx.json, a software bill of materials (CycloneDX)"
	@echo "  make wheels           dist/: the source distribution, wheels of npuc-runtime for x86-64 and aarch64, the wheel of npuc"
	@echo "  make release-check    these archives built twice and compared; the wheels in empty environments outside of the repository: demo, and the runtime alone"
	@echo "  make release-check-arm  the runtime's wheel for aarch64 under qemu-user, against this machine's bits"

demo: $(STAMPS)/npuc
	$(BIN)/python examples/demo.py

test: $(STAMPS)/test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not browser"

test-slow: $(STAMPS)/test $(STAMPS)/notebook
	$(BIN)/python -m pytest -n 2 -m "not browser"

# TensorFlow judges imports and is needed for nothing else, so it has a Python of its own.
TENSORFLOW := build/peers/tensorflow

peers-tensorflow: $(TENSORFLOW)/stamp

$(TENSORFLOW)/stamp: tests/constraints-tensorflow.txt
	@echo "installing TensorFlow in $(TENSORFLOW)"
	@$(PYTHON) -m venv $(TENSORFLOW)
	@$(TENSORFLOW)/bin/python -m pip install -qq --disable-pip-version-check -c $< tensorflow-cpu keras
	@touch $@

# OpenVINO loads exported QDQ files, in a Python of its own.
OPENVINO := build/peers/openvino

peers-openvino: $(OPENVINO)/stamp

$(OPENVINO)/stamp:
	@echo "installing OpenVINO in $(OPENVINO)"
	@$(PYTHON) -m venv $(OPENVINO)
	@$(OPENVINO)/bin/python -m pip install -qq --disable-pip-version-check "openvino>=2024.0"
	@touch $@

# Brevitas and torchao train beside npuc: PYTHONPATH=build/peers/qat .venv/bin/python benchmarks/bench_qat.py train --tool brevitas
QATPEERS := build/peers/qat

peers-qat: $(QATPEERS)/stamp

$(QATPEERS)/stamp: $(STAMPS)/test
	@echo "installing Brevitas and torchao in $(QATPEERS)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --target $(QATPEERS) \
		brevitas==0.13.4 dependencies==2.0.1 unfoldNd torchao==0.18.0 onnxscript onnx-ir onnxoptimizer
	@touch $@

# TPU-MLIR itself, for round trips; its wheel is for Python 3.10 only. The C library that it bundles breaks on newer systems.
# Its commands import torch but need no part of CUDA: 1.12.1 alone is 0.8 GB to load, newer ones bring 3 GB more of libraries.
TPUMLIR := build/peers/tpumlir
PYTHON310 ?= python3.10

peers-tpumlir: $(TPUMLIR)/stamp

$(TPUMLIR)/stamp:
	@echo "installing TPU-MLIR in $(TPUMLIR)"
	@$(PYTHON310) -m venv $(TPUMLIR)
	@$(TPUMLIR)/bin/python -m pip install -qq --disable-pip-version-check "tpu_mlir[onnx]==1.30.2" typing_extensions psutil pyyaml rich setuptools==59.6.0
	@$(TPUMLIR)/bin/python -m pip install -qq --disable-pip-version-check --no-deps torch==1.12.1
	@cd $(TPUMLIR)/lib/python3.10/site-packages/tpu_mlir/lib/third_party && \
		rm -f libc.so* libm.so* libpthread.so* libstdc++.so* libgcc_s.so*
	@touch $@

test-tpumlir: $(STAMPS)/test peers-tpumlir
	$(BIN)/python -m pytest tests/compat/test_tpumlir_round_trip.py

# What npuc uses of SOPHGO's wheel: the functional model of the BM1684X, its runtime and its encoder, for whatever Python; nothing of it
# is part of npuc. NPUC_SOPHGO names another folder that has it.
SOPHGO := build/peers/sophgo

peers-sophgo: $(SOPHGO)/stamp

$(SOPHGO)/stamp: $(STAMPS)/test
	@echo "unpacking the libraries of tpu_mlir 1.30.2 in $(SOPHGO)"
	@mkdir -p $(SOPHGO)
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps --python-version 3.10 --only-binary :all: -d $(SOPHGO) tpu_mlir==1.30.2
	@$(BIN)/python -c "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); \
		[z.extract(n, sys.argv[2]) for n in z.namelist() if n.startswith('tpu_mlir-') or n.startswith('tpu_mlir/lib/lib') and \
		('bm1684x.so' in n or n.rsplit('/', 1)[1].startswith(('libcmodel.so', 'libbmlib.so', 'libbmrt.so')))]" \
		$(SOPHGO)/tpu_mlir-1.30.2-*.whl $(SOPHGO)
	@rm $(SOPHGO)/tpu_mlir-1.30.2-*.whl
	@touch $@

test-sophgo: $(STAMPS)/test peers-sophgo
	$(BIN)/python -m pytest -n 2 $(wildcard tests/*/test_bm1684x*.py)

bench-qdq: $(STAMPS)/test peers-openvino
	$(BIN)/python benchmarks/bench_qdq.py --openvino $(OPENVINO)/bin/python

test-frameworks: $(STAMPS)/test peers-tensorflow
	$(BIN)/python -m pytest tests/frontend/test_tensorflow_models.py tests/frontend/test_tensorflow_ops.py \
		tests/frontend/test_keras_networks.py tests/integrations/test_keras_tensorflow.py

# Node fetches what the page of the studio takes from npm; wheels and editable installations then have it.
studio:
	python3 npm/build.py

test-studio: $(STAMPS)/test $(STAMPS)/browser studio
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n 0 -m "browser or not browser" tests/studio tests/browser/test_studio_page.py \
		tests/browser/test_studio_stories.py

# axe-core comes with what npm fetches for the studio.
test-site: $(STAMPS)/test $(STAMPS)/browser site
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n 0 -m "browser or not browser" tests/test_site.py tests/browser/test_site_page.py

test-notebooks: $(STAMPS)/notebook
	$(BIN)/python -m pytest -n 0 tests/test_notebooks.py

test-browser: $(STAMPS)/test $(STAMPS)/browser
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -m browser tests/browser

# The checks must be loaded before Python; leaks are not looked for, since Python itself frees little at its end.
SANITIZED := build/sanitize
SANITIZE = ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 NPUC_LIBRARY=$(CURDIR)/$(SANITIZED)/libnpuc.so \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)"

sanitize: $(STAMPS)/test $(STAMPS)/cmake
	@echo "building the library with checks"
	@$(BIN)/cmake -S . -B $(SANITIZED) -G "Unix Makefiles" -DCMAKE_RULE_MESSAGES=OFF -DCMAKE_TARGET_MESSAGES=OFF \
		-DNPUC_SANITIZE=ON -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -Werror" >/dev/null
	@$(BIN)/cmake --build $(SANITIZED) --parallel 2 -- --no-print-directory
	$(SANITIZE) $(BIN)/python -m pytest -n 2 -m "not slow" tests/kernels tests/sim tests/schedule/test_memory_core.py \
		tests/schedule/test_memory_plan.py tests/calib/test_observe_kernel.py tests/debug/test_compiled_layers.py tests/codegen/test_host_operators.py

# Debian's gcc-aarch64-linux-gnu and qemu-user must be here; ARM_CASES random layers, products and vector operators each.
ARM_CASES ?= 5000

test-arm: $(STAMPS)/test
	NPUC_KERNEL_CASES=$(ARM_CASES) $(BIN)/python -m pytest -n 0 -rs tests/kernels/test_arm.py

# Python is not built with these checks, but its locks are seen: they are those of the C library. TSAN_JOBS and TSAN_SELECT make
# a shorter form.
RACES := build/tsan
TSAN_JOBS ?= 1000
TSAN_SELECT ?=

# The thread sanitizer of older compilers cannot live with much randomness of addresses.
FIXED := $(shell setarch -R true 2>/dev/null && echo setarch -R)

tsan: $(STAMPS)/test $(STAMPS)/cmake
	@echo "building the library with race checks"
	@$(BIN)/cmake -S . -B $(RACES) -G "Unix Makefiles" -DCMAKE_RULE_MESSAGES=OFF -DCMAKE_TARGET_MESSAGES=OFF \
		-DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -g -Werror -fsanitize=thread" \
		-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread >/dev/null
	@$(BIN)/cmake --build $(RACES) --parallel 2 -- --no-print-directory
	$(FIXED) env TSAN_OPTIONS="exitcode=66" $(BIN)/python tests/c_load.py --library $(RACES)/libnpuc.so \
		--flags=-fsanitize=thread --jobs $(TSAN_JOBS)
	$(FIXED) env TSAN_OPTIONS="exitcode=66 ignore_noninstrumented_modules=1 suppressions=$(CURDIR)/tests/tsan.supp" \
		NPUC_LIBRARY=$(CURDIR)/$(RACES)/libnpuc.so LD_PRELOAD="$$(gcc -print-file-name=libtsan.so)" \
		$(BIN)/python -m pytest -m "not slow" tests/runtime/test_load.py $(TSAN_SELECT)

# PROVE="--models caffe,mnist" picks models, --six a few, --forms and --variants what is done with them; --resume FILE goes on
# where it was stopped.
PROVE ?=

prove-c: $(STAMPS)/test
	$(BIN)/python tests/c_proof.py $(PROVE)

# FUZZ="--only onnx,runtime" picks targets, --runs counts executions instead of minutes. clang must be here; Atheris is installed.
MINUTES ?= 10
FUZZ ?=

build/fuzz/site/stamp: $(STAMPS)/test
	@mkdir -p build/fuzz
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --target build/fuzz/site atheris
	@touch $@

fuzz: $(STAMPS)/test $(STAMPS)/cmake build/fuzz/site/stamp
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES) $(FUZZ)

JOBS ?= 1000000

soak: $(STAMPS)/test
	$(BIN)/python tests/soak.py --jobs $(JOBS)

# MUTATE="--rooms evaluate,cli --seed 7" picks rooms and faults.
COUNT ?= 100
MUTATE ?=

mutate: $(STAMPS)/test
	$(BIN)/python tests/mutate.py --count $(COUNT) $(MUTATE)

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(STAMPS)/test
	$(BIN)/python tests/conformance.py

bench-kernels: $(STAMPS)/npuc
	$(BIN)/python benchmarks/bench_kernels.py

bench-import: $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_import.py

bench-calib: $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_calib.py

bench-int: $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_int.py

# torch, which the ladder learns with, comes with what the tests need.
bench-accuracy: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_accuracy.py

bench-default: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_default.py

bench-rounding: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_rounding.py

# Vela comes with what the tests need.
bench-schedule: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_schedule.py
	$(BIN)/python benchmarks/bench_vela.py

bench-compression: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_compression.py

bench-explore: $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_explore.py

bench-sim: $(STAMPS)/bench
	$(BIN)/python benchmarks/bench_sim.py

sweep: $(STAMPS)/bench
	$(BIN)/python benchmarks/sweep_compile.py

# The first run fetches 300 MB of wheels and builds for some ten minutes.
zoo-models: $(STAMPS)/test
	$(BIN)/python benchmarks/zoo_models.py

zoo: $(STAMPS)/test $(STAMPS)/bench
	$(BIN)/python benchmarks/zoo_figures.py --write-docs

sweep-zoo: zoo-models
	$(BIN)/python benchmarks/sweep_zoo.py --write-docs

bench-memory: $(STAMPS)/npuc
	$(BIN)/python benchmarks/bench_memory.py

bench-runtime: $(STAMPS)/npuc
	$(BIN)/python benchmarks/bench_runtime.py

bench-frameworks: $(STAMPS)/npuc
	$(BIN)/python benchmarks/bench_frameworks.py

install-size:
	$(PYTHON) benchmarks/install_size.py

docs: $(STAMPS)/npuc
	$(BIN)/python -m npuc.cli.gendocs

notebooks:
	$(PYTHON) release/notebooks.py

licences: $(STAMPS)/npuc
	$(BIN)/python release/licences.py

sbom: $(STAMPS)/npuc
	$(BIN)/python release/sbom.py build/npuc.cdx.json

build/site/venv/stamp:
	@echo "installing mkdocs-material in build/site/venv"
	@mkdir -p build/site
	@$(PYTHON) -m venv build/site/venv
	@build/site/venv/bin/python -m pip install -qq --disable-pip-version-check mkdocs-material "mkdocstrings[python]"
	@touch $@

site: build/site/venv/stamp studio
	build/site/venv/bin/python release/site_pages.py

RELEASE := build/release

$(RELEASE)/stamp:
	@echo "installing what builds wheels in $(RELEASE)"
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install -qq --disable-pip-version-check build ziglang auditwheel
	@touch $@

wheels: $(RELEASE)/stamp
	$(RELEASE)/bin/python release/wheels.py dist
	$(RELEASE)/bin/python -m auditwheel show dist/npuc_runtime-*_x86_64.whl

# PYTHONS="python3.12 python3.13" checks with more interpreters.
PYTHONS ?= $(PYTHON)

release-check: wheels
	$(RELEASE)/bin/python release/digests.py dist
	for python in $(PYTHONS); do $(PYTHON) release/check.py dist --python $$python || exit 1; done

# qemu-user must be here (apt install qemu-user); Python for arm64 comes from Debian's packages, unpacked in build/aarch64.
release-check-arm: $(STAMPS)/npuc wheels
	$(BIN)/python release/check_aarch64.py dist build/aarch64

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- set-up -------------------------------------------------------------------------------------------------------

$(STAMPS)/venv:
	@echo "creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "npuc needs Python 3.11 or newer; name one with: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# Later stamps ask for extras of the npuc that is already there, so the library is built once.
# Editable: Python changes need nothing, a change of the C sources or the metadata installs again.
$(STAMPS)/npuc: $(STAMPS)/venv pyproject.toml constraints.txt $(NATIVE)
	@echo "installing npuc"
	@$(PIP_INSTALL) -e .
	@touch $@

$(STAMPS)/test: $(STAMPS)/npuc tests/requirements-models.txt
	@echo "installing what the tests need"
	@$(PIP_INSTALL) 'npuc[test]'
	@$(PIP_INSTALL) --no-deps -r tests/requirements-models.txt
	@touch $@

$(STAMPS)/browser: $(STAMPS)/npuc
	@echo "installing what drives a browser"
	@$(PIP_INSTALL) 'npuc[browser]'
	@touch $@

$(STAMPS)/notebook: $(STAMPS)/test
	@echo "installing what runs notebooks"
	@$(PIP_INSTALL) 'npuc[notebook]'
	@touch $@

$(STAMPS)/cmake: $(STAMPS)/venv constraints.txt
	@echo "installing cmake"
	@$(PIP_INSTALL) cmake
	@touch $@

$(STAMPS)/lint: $(STAMPS)/npuc
	@echo "installing what lint needs"
	@$(PIP_INSTALL) 'npuc[lint]'
	@touch $@

$(STAMPS)/bench: $(STAMPS)/npuc
	@echo "installing what the benchmarks need"
	@$(PIP_INSTALL) 'npuc[bench]'
	@touch $@
