"""Small networks in every format and dialect, built or drawn at random."""
