"""Plugins: Python code of the user's own that teaches npuc formats, ops, instructions, accelerators, rules and metrics.

    import npuc.plugins

    npuc.plugins.load("hard_glu.py")

A plugin is a module that registers things with `npuc.plugins.api` while it is imported. Installed packages name theirs as
entry points of the group `npuc.plugins`; the commands load those, and what `--plugin` names. No model file, target file or
compiled model ever names one.
"""

from npuc.plugins.loading import GROUP, Plugin, discover, load, loaded

__all__ = ["GROUP", "Plugin", "discover", "load", "loaded"]
