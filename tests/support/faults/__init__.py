"""Faults planted on purpose (`make mutate`): what can be planted, which tests run a statement, and what they say of a fault."""
