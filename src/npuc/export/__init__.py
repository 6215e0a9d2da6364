"""Export: an npuc program in the formats of other tools, one package a format."""
