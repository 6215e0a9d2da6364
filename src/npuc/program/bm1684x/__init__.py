"""The BM1684X: its commands, and the `.bmodel` files that its runtime executes."""
