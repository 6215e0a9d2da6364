"""Public names that were changed still work, and tell the new one."""

from __future__ import annotations

from importlib import import_module

import pytest

OLD = {
    "npuc.evaluate": {
        "Box": "LabelledBox",
        "Entry": "SampleEntry",
        "Loaded": "LoadedSample",
        "Place": "DataLocation",
        "Report": "EvaluationReport",
    },
    "npuc.datasets.sample": {"Box": "LabelledBox", "Entry": "SampleEntry", "Loaded": "LoadedSample"},
    "npuc.datasets.data": {"Place": "DataLocation"},
    "npuc.runtime": {"Loaded": "LoadedModel"},
    "npuc.schedule.memory": {"picture": "plan_svg"},
    "npuc.export.tflite": {"Model": "TFLiteModel", "Options": "TFLiteOptions"},
}


@pytest.mark.parametrize(
    ("module", "old", "new"), [(module, *pair) for module, names in OLD.items() for pair in names.items()]
)
def test_an_old_name_gives_the_same_class(module: str, old: str, new: str) -> None:
    place = import_module(module)
    with pytest.warns(FutureWarning, match=f"{module}.{old} is now {new}"):
        assert getattr(place, old) is getattr(place, new)


def test_the_plugin_interface_keeps_its_names() -> None:
    api = import_module("npuc.plugins.api")
    assert api.Entry is api.SampleEntry and api.Loaded is api.LoadedSample
