"""Lowering rules, Top to Npu: one module a family of ops; the registry finds them."""
