"""What a machine cannot do: for each op kind, conditions over its parameters, each with the sentence that a user reads.

    rules:
      conv:
        weight_bank:
          require: kw*kh*ceil(ic/channel_parallel) <= bank_depth
          because: The kernel of one output channel does not fit the weight bank.

Rules have names, so that a target that extends this one can change one of them, or remove it with null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, StringConstraints

from npuc.errors import LimitExpressionError
from npuc.target.base import Part, Sentence
from npuc.target.expressions import Expression, parse_expression
from npuc.target.frozen import FrozenDict, FrozenMapping
from npuc.target.units import Rate
from npuc.target.vocabulary import ACTIVATION_FORMS, ACTIVATIONS, OP_KINDS, nearest


def _expression(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    # A rewrite may say `kh: 1`.
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    try:
        return parse_expression(text)
    except LimitExpressionError as error:
        raise ValueError(error.paragraph()) from error


def _kind(value: Any) -> Any:
    if isinstance(value, str) and value not in OP_KINDS:
        raise ValueError(f"'{value}' is not an op kind{nearest(value, OP_KINDS)}")
    return value


def _activation(value: Any) -> Any:
    if isinstance(value, str) and value not in ACTIVATIONS:
        raise ValueError(f"'{value}' is none of {', '.join(ACTIVATIONS)}{nearest(value, ACTIVATIONS)}")
    return value


if TYPE_CHECKING:
    ActivationForm = str
else:  # the names come from the vocabulary, which a type checker cannot read
    ActivationForm = Literal[ACTIVATION_FORMS]
OpKind = Annotated[str, BeforeValidator(_kind)]
Activation = Annotated[str, BeforeValidator(_activation)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
ExpressionField = Annotated[InstanceOf[Expression], BeforeValidator(_expression), PlainSerializer(str)]


class Rule(Part):
    """A condition that an op has to meet to run on the machine."""

    require: ExpressionField
    """The condition, over the op's parameters, the constants and the machine's figures."""
    because: Sentence
    """What a user reads when it fails."""


class Rewrite(Part):
    """An op kind that the machine runs as another one."""

    to: OpKind
    """What it becomes."""
    parameters: FrozenMapping[Name, ExpressionField] = Field(default_factory=FrozenDict)
    """Parameters of the new op, as expressions over those of the old one; the rest keep their values."""


class Limits(Part):
    """What runs on the machine and what does not."""

    ops: Literal["all"] | Annotated[tuple[OpKind, ...], Field(strict=False)] = "all"
    """The op kinds that the machine has; `all` leaves it to `unsupported` and `rules`."""
    unsupported: FrozenMapping[OpKind, Sentence] = Field(default_factory=FrozenDict)
    """Op kinds that it does not have, each with the reason."""
    constants: FrozenMapping[Name, Rate] = Field(default_factory=FrozenDict)
    """Numbers that rules use by name."""
    rules: FrozenMapping[OpKind, FrozenMapping[Name, Rule]] = Field(default_factory=FrozenDict)
    """Op kind to its conditions, by name."""
    rewrites: FrozenMapping[OpKind, Rewrite] = Field(default_factory=FrozenDict)
    """Op kinds that run as other ones."""
    fused: FrozenMapping[OpKind, Annotated[tuple[Activation, ...], Field(strict=False)]] = Field(
        default_factory=FrozenDict
    )
    """Op kind to the activations that its output stage can have; an op kind that is not here can have any."""
    activation_forms: Annotated[tuple[ActivationForm, ...], Field(strict=False)] = ()
    """Activations that the machine computes in another form: networks are changed so before they are quantized, with a note."""
