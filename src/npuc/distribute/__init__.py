"""Work in chunks, run by processes of this machine or by a Dask cluster, with a journal that a killed run goes on from.

A *plan* is plain data that travels to workers and is opened there; a *chunk* is a number and what the plan is to work on. What a
worker that dies had is given to another, so the results do not depend on who ran what.
"""
