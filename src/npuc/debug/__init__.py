"""Finding the layer that is wrong: dumps of every tensor, golden runs against them, samples for a board."""
