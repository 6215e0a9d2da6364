"""Import rules, one module a family of operators; the registry finds them."""
