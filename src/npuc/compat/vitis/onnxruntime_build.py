"""The vendor's build of ONNX Runtime: the installed one, whose sessions know the vendor's execution provider.

Nothing of npuc is imported before a session names the provider.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

NAME = "VitisAIExecutionProvider"


def extend(onnxruntime: ModuleType) -> None:
    """Give an imported `onnxruntime` the provider."""
    plain: Any = onnxruntime.InferenceSession
    listed = onnxruntime.get_available_providers

    class Sessions(type(plain)):  # type: ignore[misc]
        """Makes a session of npuc where the vendor's provider is named, and one of ONNX Runtime otherwise."""

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not InferenceSession:
                return super().__call__(*args, **kwargs)
            providers = kwargs.get("providers", args[2] if len(args) > 2 else None) or ()
            if not any((entry[0] if isinstance(entry, tuple) else entry) == NAME for entry in providers):
                return plain(*args, **kwargs)
            from npuc.compat.vitis.execution_provider import InferenceSession as own

            return own(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return (
                isinstance(instance, plain)
                if cls is InferenceSession
                else super().__instancecheck__(instance)
            )

    class InferenceSession(plain, metaclass=Sessions):  # type: ignore[misc]
        __doc__ = plain.__doc__

    def get_available_providers() -> list[str]:
        return [NAME, *listed()]

    get_available_providers.__doc__ = listed.__doc__
    added: dict[str, Any] = {
        "PlainInferenceSession": plain,
        "InferenceSession": InferenceSession,
        "get_available_providers": get_available_providers,
    }
    for name, value in added.items():
        setattr(onnxruntime, name, value)
