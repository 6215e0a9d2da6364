"""Mixed precision, chosen: each tensor and each layer's weights get the type that the network needs there, and no more.

What a type costs in accuracy is measured, unit by unit (`sensitivity`); what it costs in time is the compiler's word
(`cycles`); an exact solver gives every combination that no other beats in both (`frontier`).
"""
