"""A project and a server of it."""

from support.studio_server import client, project_folder, studio_files

__all__ = ["client", "project_folder", "studio_files"]
