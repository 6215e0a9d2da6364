"""PyTorch: the backend of `torch.compile`, and modules that are compiled ahead of time.

`backend` is what the entry point `torch_dynamo_backends` names; `session` is one graph of dynamo's from its first call on;
`graph` turns what dynamo hands over into a network with its weights as constants; `module` is the `nn.Module` that saves and
loads.
"""
