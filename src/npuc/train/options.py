"""The options of a training run: how long, how fast, towards what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npuc.errors import UsageError


class TrainingOptions(BaseModel):
    """How a network is trained; the same options and seed give the same numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: Annotated[int, Field(ge=0, le=100_000)] = 10
    batch: Annotated[int, Field(ge=1, le=65_536)] = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """`sgd` has a Nesterov momentum of 0.9."""
    rate: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.01
    """The learning rate after warm-up, which decays to zero along a cosine."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """The share of all steps in which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 1e-4
    loss: Literal["labels", "distillation", "both"] = "labels"
    """Cross entropy with the labels, the divergence from the outputs of a float network (no labels needed), or their mean."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Of distillation: outputs are divided by it before softmax."""
    augment: bool = False
    """Images are flipped at random and cropped at random from a border of `crop` pixels."""
    crop: Annotated[int, Field(ge=0, le=256)] = 4
    mixup: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Samples are mixed in pairs, and their classes, too, in shares from a beta distribution of this parameter; 0 mixes none.
    A float network that knows its training images by heart says more about mixtures of them: use it with distillation."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of activations (autocast); parameters stay in float32. On CUDA, bfloat16 puts channels last, too."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The decay of an exponential moving average of all parameters, which is what is measured and kept; 0 keeps the last ones."""
    clip: Annotated[float, Field(ge=0)] = 0.0
    """The largest norm of the gradient; larger ones are scaled down. 0 leaves them as they are."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Stop after this many epochs without a better score on the validation samples; 0 runs all epochs."""
    keep: Literal["last", "best"] = "last"
    """The parameters at the end: the last ones, or those of the best score on the validation samples."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    device: str = "cpu"
    """`cpu`, `cuda` or `cuda:N`."""
    cuda_graph: bool = False
    """On CUDA, record a step once and replay it, which is several times faster for small networks. The module has to do the same
    operations in every step."""

    @staticmethod
    def checked(**fields: object) -> TrainingOptions:
        """The options of these fields; `UsageError` names the one that makes no sense."""
        try:
            return TrainingOptions.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"the training option '{field}': {first['msg']}") from error
