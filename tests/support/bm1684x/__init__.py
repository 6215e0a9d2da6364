"""Judges of programs for the BM1684X: a slow interpreter of its commands, random commands, and the vendor's libraries."""
