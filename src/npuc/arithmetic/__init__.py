"""Element types, requantization, and the arithmetic of TFLite: numbers only, no graph and no machine."""
