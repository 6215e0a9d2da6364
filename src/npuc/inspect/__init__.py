"""Inspection: on which device each layer of a network would run, and why."""
