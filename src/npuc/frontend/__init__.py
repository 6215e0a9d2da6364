"""Importers: a foreign model in, Top IR out, nothing else."""
