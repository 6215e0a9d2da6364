"""Data sets: what lists samples, reads them, and knows what is true of them."""
