"""Finding the layer that is wrong: dumps of every tensor, golden runs, differences, single layers, samples for a board."""
