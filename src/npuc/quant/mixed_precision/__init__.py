"""Mixed precision: each tensor and each layer's weights get the type that the network needs there.

The noise of each type is measured unit by unit (`sensitivity`), its cycles come from the compiler's cost model
(`cost_model`), and an exact solver computes the Pareto frontier of noise and cycles (`frontier`).
"""
