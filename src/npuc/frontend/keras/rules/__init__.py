"""Import rules, one module a family of layers; the registry finds them."""
