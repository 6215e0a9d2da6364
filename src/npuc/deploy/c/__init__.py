"""A compiled model as a C application.

`application` puts it together, `settings` states the preprocessing of images, `arrays` has the model as C arrays for the
standalone form, `sources` finds the C runtime; `app/` has the files that an application starts from.
"""

from npuc.deploy.c.application import application_files, export_c

__all__ = ["application_files", "export_c"]
