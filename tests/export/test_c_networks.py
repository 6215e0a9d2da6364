"""Whole networks as C applications, in every way of building and running them: the long form of `test_c_application`."""

from __future__ import annotations

from pathlib import Path

import pytest

from c_proof import FORMS, VARIANTS, Workshop, exported, model_files, on_the_npu
from npuc.codegen.compile_model import compile_program
from npuc.quant import quantize
from npuc.quant.scheme import Scheme
from support.networks.backend import machine
from support.networks.two_convolutions import RANGES, network

pytestmark = pytest.mark.slow
_FILES = model_files()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("objects"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(_FILES) or ["no shared models"])
def test_every_model_is_proved(
    name: str, form: str, shared: Path, workshop: Workshop, tmp_path: Path
) -> None:
    model = on_the_npu(name, _FILES[name])
    if isinstance(model, str):
        assert not model.startswith("FAULT"), model
        pytest.skip(model)
    app = exported(model, tmp_path, form)
    for variant in VARIANTS.values():
        if not variant.missing:
            workshop.prove(app, form, variant)
    if form == "standalone":
        workshop.no_allocator(app)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("weight", "activation"), [("i5", "i12"), ("i11", "i9"), ("i2", "i8")])
def test_odd_widths_are_proved(
    weight: str, activation: str, form: str, workshop: Workshop, tmp_path: Path
) -> None:
    scheme = Scheme(activation=activation, activation_scales="symmetric", weight=weight)
    model = compile_program(quantize(network(), RANGES, scheme), machine(64 << 10)).model
    app = exported(model, tmp_path, form)
    for variant in VARIANTS.values():
        if not variant.missing:
            workshop.prove(app, form, variant)
