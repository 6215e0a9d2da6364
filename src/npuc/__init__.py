"""npuc: an open NPU compiler suite."""

__version__ = "0.1.0"
