"""What a network is made of: its layers, parameters and work."""
