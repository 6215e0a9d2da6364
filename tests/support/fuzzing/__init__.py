"""Coverage-guided fuzzing of all that reads files; `tests/fuzz.py` is the command."""
