"""The steps that there are; importing this registers them."""
