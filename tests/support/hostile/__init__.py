"""Files that mean harm, damage to files, and processes in which it does no harm."""
