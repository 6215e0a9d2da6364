"""What tests of several integrations need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.programs.ort_host import OrtHost


@pytest.fixture(scope="session")
def cpp_host(tmp_path_factory: pytest.TempPathFactory) -> OrtHost:
    """A C++ program with ONNX Runtime and the provider."""
    from support.programs.ort_host import OrtHost

    return OrtHost(tmp_path_factory.mktemp("cpp"))
