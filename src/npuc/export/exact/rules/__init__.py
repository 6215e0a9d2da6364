"""The exact rules, one module a family of ops; importing this package registers them all."""

from npuc.export.exact.rules import arithmetic, boundary, linear, recurrent, rows, softmax, tables

__all__ = ["arithmetic", "boundary", "linear", "recurrent", "rows", "softmax", "tables"]
