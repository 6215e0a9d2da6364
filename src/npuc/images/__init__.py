"""Images as network inputs: decoding, resizing, and the preprocessing that a network states."""
