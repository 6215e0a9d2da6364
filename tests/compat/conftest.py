"""A project of the studio, which `visual.py` opens."""

from support.studio_server import studio_files

__all__ = ["studio_files"]
