"""Scheduling: what runs when and where, and where in memory its data lies."""
