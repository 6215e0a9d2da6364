"""Export rules, one module a family of ops."""
