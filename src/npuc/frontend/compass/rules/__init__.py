"""Import rules, one file a family."""
