"""Metrics: a record of every sample, and figures of all records."""
