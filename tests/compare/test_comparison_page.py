"""The page that compares two runs holds their figures, and nothing that a name could break out of."""

from __future__ import annotations

import json
import re

import numpy as np

from npuc.compare.page import ComparedLayer, comparison_page

HOSTILE = "</script><script>alert(1)</script>"


def test_figures_and_tensors_without_a_partner() -> None:
    values = {"a": np.array([1.0, 2.0, np.inf]), HOSTILE: np.arange(2000.0)}
    page = comparison_page(
        HOSTILE,
        [ComparedLayer(name, "npu.conv") for name in values],
        values,
        {"a": np.array([1.0, 2.0, np.inf])},
        {"x": HOSTILE},
    )
    assert "<script>alert" not in page and "http://" not in page.replace("http://www.w3.org", "")
    match = re.search(r"const data=(\[.*\]);", page)
    assert match is not None
    first, second = json.loads(match[1])
    assert first["cosine"] == 1.0 and second["cosine"] is None and len(second["a"]) <= 400
