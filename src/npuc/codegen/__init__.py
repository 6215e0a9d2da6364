"""The instruction set, and the file that holds instructions, weights and tables."""
