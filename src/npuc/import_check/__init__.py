"""The check of an import: the original network, run by its own framework, against the imported one."""
