"""Compiled models: made by hand, run under load, exported as C, encoded for another machine."""
