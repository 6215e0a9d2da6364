"""Channel pruning: fewer channels, chosen by what they do and by what they cost on the machine."""
