"""The options of pruning, the same for every method and from every side: command line, Python, file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npuc.errors import UsageError
from npuc.train.pruning.criteria import Criterion

Method = Literal["iterative", "one-step", "once-for-all"]


class PruningOptions(BaseModel):
    """How channels are chosen; the same options and seed give the same network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criterion: Criterion = "l2"
    steps: Annotated[int, Field(ge=1, le=100)] = 3
    """Of the iterative method: the budget is approached in so many steps, with training after each."""
    epochs_between: Annotated[int | None, Field(ge=0, le=100_000)] = None
    """Of the iterative method: epochs after each step but the last; None trains as long after each."""
    sensitivity_weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the iterative method: the power of measured sensitivities in the choice of widths. 0 looks at widths and costs alone,
    which is better after long training; where only some epochs follow, 0.125 is."""
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 30
    """Of the one-step method: networks that are drawn and measured."""
    generations: Annotated[int, Field(ge=1, le=1000)] = 8
    """Of once-for-all: rounds of the evolutionary search."""
    population: Annotated[int, Field(ge=4, le=1000)] = 16
    kernels: bool = True
    """Of once-for-all: kernels of convolutions may become smaller, too."""
    least_width: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Of once-for-all: the narrowest subnet keeps this share of each group, or what the budget needs."""
    random_subnets: Annotated[int, Field(ge=0, le=16)] = 2
    """Of once-for-all: subnets of random widths in each training step, beside the largest and the smallest."""
    snap: bool = True
    """Widths fill the lanes of the target."""
    batch_norms: bool = True
    """Convolutions whose batch norms were folded get one again while they are trained."""
    samples: Annotated[int, Field(ge=1)] = 512
    """Samples of the validation data on which candidates and sensitivities are measured, and statistics taken."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @staticmethod
    def checked(**fields: object) -> PruningOptions:
        """The options of these fields; `UsageError` names the one that makes no sense."""
        try:
            return PruningOptions.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"the pruning option '{field}': {first['msg']}") from error
