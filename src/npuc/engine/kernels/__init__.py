"""The native core's functions on NumPy arrays, one module a family."""
