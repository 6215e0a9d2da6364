"""Import rules, one module a family of ops; the registry finds them."""
