"""Train networks for the machine: on its integers, with fewer channels by its own cycles, or with sparse weights.

All commands need the extra npuc[torch].
"""

from __future__ import annotations

import typer

from npuc.cli import train_groups, train_prune, train_qat, train_sensitivity, train_sparsify

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("groups", help=train_groups.__doc__)(train_groups.command)
app.command("prune", help=train_prune.__doc__)(train_prune.command)
app.command("qat", help=train_qat.__doc__)(train_qat.command)
app.command("sensitivity", help=train_sensitivity.__doc__)(train_sensitivity.command)
app.command("sparsify", help=train_sparsify.__doc__)(train_sparsify.command)
