"""How good a result is: metrics, comparisons, and the check of an import against the original."""
