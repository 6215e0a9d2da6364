"""Slow, obvious models of what npuc computes, written from the documents and not from the code."""
