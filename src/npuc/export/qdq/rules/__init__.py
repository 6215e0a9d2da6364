"""The QDQ rules, one module a family of ops; importing this package registers them all."""

from npuc.export.qdq.rules import arithmetic, boundary, floats, linear, recurrent, rows, tables

__all__ = ["arithmetic", "boundary", "floats", "linear", "recurrent", "rows", "tables"]
