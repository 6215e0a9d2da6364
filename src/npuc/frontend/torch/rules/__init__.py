"""Import rules, one module a family."""
