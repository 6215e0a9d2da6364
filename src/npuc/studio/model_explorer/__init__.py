"""npuc's files in Google's Model Explorer: `model-explorer --extensions=npuc.studio.model_explorer`.

graph      a graph of the studio in Model Explorer's form, and data of its layers
main       the adapter, which Model Explorer loads; it needs the package ai-edge-model-explorer
"""
