"""Compiled models outside Python: C applications."""
