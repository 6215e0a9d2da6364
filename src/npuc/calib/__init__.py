"""Data in: pictures, tensor files and random samples become the inputs of a network."""
