"""npuc inside of other frameworks: what their sessions, compiled modules and delegates share, and one module for each.

Every integration gives the bits of `npuc run`, and the same report (`report`) of what runs where and why.
"""
