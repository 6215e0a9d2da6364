"""The torch engine: Top IR as a `torch.nn.Module`, on the CPU or on CUDA, for what needs gradients or a GPU.

    >>> from npuc.engine.torch import TopModule
    >>> module = TopModule(graph).to("cuda")                # doctest: +SKIP
    >>> module({"x": x})["scores"].sum().backward()         # doctest: +SKIP

Ops are functions of torch tensors, one registry, one file a family. It needs the extra `npuc[torch]`.
"""

from npuc.engine.torch.module import After, TopModule, TorchEngine

__all__ = ["After", "TopModule", "TorchEngine"]
