"""The training loop: any torch module over labelled arrays, the same numbers for the same seed, also after an interruption.

    fit(module, train, held, TrainingOptions(epochs=10, rate=0.01), checkpoint="run.safetensors")

All that is random is drawn anew at the begin of an epoch from the seed and the number of the epoch, and a checkpoint is written
at its end: a run that was killed goes on from there, and ends with the numbers of one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from npuc.activity import activity
from npuc.errors import EngineError, TrainingError, UsageError
from npuc.train.augmentation import augmented, mixed, moved, padded
from npuc.train.capture import CapturedGradients
from npuc.train.checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_state,
    restore_optimizer,
    save_checkpoint,
)
from npuc.train.data import TrainingData
from npuc.train.options import TrainingOptions
from npuc.words import counted

_MEASURED = 500
"""Samples at a time when a module is measured."""
Hook = Callable[[int, int, int], None]
"""Gets the epoch, the step in it and the number of steps of an epoch, before each step."""


@dataclass(frozen=True)
class Epoch:
    """What is known after an epoch."""

    epoch: int
    """Counted from 1."""
    epochs: int
    loss: float
    """The mean over the steps of the epoch."""
    score: float | None
    """On the validation samples: the share of right classes or, without labels, minus the loss. None without samples."""
    rate: float
    """The learning rate at its end."""
    seconds: float

    @property
    def line(self) -> str:
        """In one line.

        >>> Epoch(3, 10, 0.25, 0.915, 0.01, 4.2).line
        'epoch  3/10  loss 0.2500  validation 0.9150  rate 0.01  4.2 s'
        >>> Epoch(3, 10, 0.25, -0.0000123, 0.01, 4.2).line
        'epoch  3/10  loss 0.2500  validation loss 1.23e-05  rate 0.01  4.2 s'
        """
        score = "" if self.score is None else f"  validation {_words(self.score)}"
        place = f"{self.epoch:{len(str(self.epochs))}d}/{self.epochs}"
        return f"epoch {place}  loss {self.loss:.4f}{score}  rate {self.rate:.3g}  {self.seconds:.1f} s"


def _words(score: float) -> str:
    """A share of right classes, or a loss, which is below zero as a score."""
    return f"loss {-score:.3g}" if math.copysign(1, score) < 0 else f"{score:.4f}"


@dataclass(frozen=True)
class TrainingResult:
    """What training gave; the parameters are in the module."""

    history: tuple[Epoch, ...]
    resumed: int = 0
    """Epochs that a checkpoint had done before."""
    stopped_early: bool = False

    @property
    def best(self) -> float | None:
        """The best score on the validation samples."""
        scores = [epoch.score for epoch in self.history if epoch.score is not None]
        return max(scores, default=None)


def fit(
    module: Any,
    data: Any,
    validation: Any = None,
    options: TrainingOptions | None = None,
    *,
    teacher: Any = None,
    parameters: Iterable[dict[str, Any]] | None = None,
    before_step: Hook | None = None,
    checkpoint: Path | str | None = None,
    log_dir: Path | str | None = None,
    report: Callable[[Epoch], None] = lambda epoch: None,
    settings: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a module in place.

    `data` and `validation` are `TrainingData`, or pairs (inputs, labels). `teacher` is the float module that distillation
    approaches. `parameters` are groups of an optimizer, each with an `lr_factor` if it learns at another rate; without them
    weights decay and vectors do not. With a `checkpoint` that is there, the run goes on from it. `log_dir` is a folder for
    event files of TensorBoard, if that is installed. `settings` is what else decides the numbers, as plain values by name: a
    checkpoint of a run that had others is refused.
    """
    return _Run(
        module,
        TrainingData.of(data),
        None if validation is None else TrainingData.of(validation),
        options or TrainingOptions(),
        teacher,
        parameters,
        before_step,
        None if checkpoint is None else Path(checkpoint),
        log_dir,
        report,
        settings or {},
    ).run()


def device_of(name: str) -> Any:
    """The torch device of a name; an error if it is not there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"'{name}' is no device of PyTorch", fix="Use cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngineError("PyTorch finds no CUDA device here", fix="Use the device cpu")
    return device


def predictions(module: Any, data: TrainingData, device: Any = None) -> Any:
    """The outputs of a module in eval mode for all samples, on the CPU; the module is left in its mode."""
    was_training = module.training
    module.eval()
    parts = []
    size = getattr(module, "batch_size", None) or _MEASURED
    with torch.no_grad():
        for begin in range(0, len(data), size):
            part = [torch.from_numpy(np.ascontiguousarray(x[begin : begin + size])) for x in data.inputs]
            parts.append(_first(module(*(x if device is None else x.to(device) for x in part))).cpu())
    module.train(was_training)
    return torch.cat(parts)


def accuracy(module: Any, data: Any, device: Any = None) -> float:
    """The share of samples whose largest output is that of their class."""
    data = TrainingData.of(data)
    assert data.labels is not None, "accuracy needs labels"
    best = predictions(module, data, device).argmax(1).numpy()
    return float(np.mean(best == data.labels))


def decayed(module: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices and kernels decay, biases and scales do not."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in learned if p.dim() <= 1], "weight_decay": 0.0},
    ]


def _require_shapes(shapes: Sequence[Sequence[int]] | None, data: TrainingData) -> None:
    """Refuse samples that are none for the inputs of a network; `shapes` is None for modules that do not state any."""
    if shapes is None:
        return
    if len(shapes) != len(data.inputs):
        raise UsageError(
            f"the network has {counted(len(shapes), 'input')}, and the data has {len(data.inputs)}",
            fix="Give one array for each input, in order",
        )
    for stated, array in zip(shapes, data.inputs, strict=True):
        if tuple(stated[1:]) != array.shape[1:]:
            raise UsageError(
                f"the network takes samples of the shape {list(stated[1:])}, and those of the data have {list(array.shape[1:])}",
                fix="Give samples along the first axis, each of the shape that the network was imported for",
            )


def _first(outputs: Any) -> Any:
    """The output that is trained: the only one, or the first."""
    if isinstance(outputs, dict):
        return next(iter(outputs.values()))
    return outputs[0] if isinstance(outputs, tuple | list) else outputs


def _logits(module: Any, batch: Sequence[Any]) -> Any:
    """The output that a loss is computed of: a network of npuc may have a softmax behind it."""
    ends = getattr(module, "ends_with_softmax", False)
    return module.logits(*batch) if ends else _first(module(*batch))


class _Run:
    """One training run."""

    def __init__(
        self,
        module: Any,
        data: TrainingData,
        validation: TrainingData | None,
        options: TrainingOptions,
        teacher: Any,
        parameters: Iterable[dict[str, Any]] | None,
        before_step: Hook | None,
        checkpoint: Path | None,
        log_dir: Path | str | None,
        report: Callable[[Epoch], None],
        settings: Mapping[str, Any],
    ) -> None:
        self.module, self.data, self.validation, self.options = module, data, validation, options
        self.teacher, self.before_step, self.checkpoint = teacher, before_step, checkpoint
        self.report, self.settings = report, settings
        self.device = device_of(options.device)
        self._check()
        module.to(self.device)
        if teacher is not None:
            teacher.to(self.device).eval()
        groups = list(parameters) if parameters is not None else decayed(module, options.weight_decay)
        groups = [group for group in groups if group["params"]]
        self.factors = [group.pop("lr_factor", 1.0) for group in groups]
        if not groups or not any(p.requires_grad for group in groups for p in group["params"]):
            raise TrainingError(
                "no parameter of the module requires a gradient: there is nothing to train",
                fix="Call requires_grad_() on its parameters",
            )
        self.optimizer = _optimizer(options, groups)
        self.steps = max(1, len(data) // options.batch)
        self.average: dict[str, Any] = {}
        if options.ema:
            self.average = {
                name: parameter.detach().clone()
                for name, parameter in module.named_parameters()
                if parameter.requires_grad
            }
        self.done = 0
        self.labels_checked = False
        self.best: dict[str, Any] = {}
        self.history: list[Epoch] = []
        self.writer = _writer(log_dir)
        self.channels_last = self.device.type == "cuda" and options.precision == "bfloat16"
        if self.channels_last:
            for network in filter(None, (module, teacher)):
                network.to(memory_format=torch.channels_last)
        inputs = data.inputs
        if options.augment:
            inputs = (padded(inputs[0], options.crop, data.border), *inputs[1:])
        self.inputs = [torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in inputs]
        labels = data.labels
        self.labels = None if labels is None else torch.from_numpy(labels).to(self.device)
        self.anneal: Callable[[float], None] | None = getattr(module, "anneal", None)
        self.classes = self._classes() if options.mixup and labels is not None else 0
        self.gradients: Callable[[Sequence[Any], Any], Any] = self._gradients
        if options.cuda_graph and self.device.type == "cuda":
            self.gradients = CapturedGradients(self._backward, self._clear)

    def _check(self) -> None:
        options = self.options
        for data in (self.data, self.validation):
            if data is not None:
                _require_shapes(getattr(self.module, "input_shapes", None), data)
        if options.loss != "distillation" and self.data.labels is None:
            raise UsageError(
                f"the loss '{options.loss}' needs the class of each sample, and the data has none",
                fix="Give labels, or use the loss 'distillation', which needs none",
            )
        if options.loss != "labels" and self.teacher is None:
            raise UsageError(f"the loss '{options.loss}' needs the float network as teacher")
        if (options.keep == "best" or options.patience) and self.validation is None:
            raise UsageError("early stopping and 'keep: best' need validation samples")
        if options.augment and self.data.inputs[0].ndim != 4:
            raise UsageError("only images of rank 4 (N, C, H, W or N, H, W, C) can be flipped and cropped")
        if options.mixup and any(x.dtype.kind != "f" for x in self.data.inputs):
            raise UsageError(
                "only inputs of floating-point numbers can be mixed", fix="Set mixup to 0 for this network"
            )

    def _classes(self) -> int:
        """How many classes the network has scores for."""
        count = getattr(self.module, "batch_size", None) or 1
        scores = predictions(self.module, self.data[:count], self.device).flatten(1)
        self.data.require_classes(scores.shape[1])
        return int(scores.shape[1])

    def run(self) -> TrainingResult:
        """All epochs that are left."""
        resumed = self._resume()
        stopped = self._exhausted()
        for epoch in range(resumed + 1, self.options.epochs + 1):
            if stopped:
                break
            done = self._epoch(epoch)
            self.history.append(done)
            if done.score is not None and done.score >= max(e.score or -math.inf for e in self.history):
                self.best = self._learned() if self.options.keep == "best" else {}
            stopped = self._exhausted()
            self._save()
            self._log(done)
            self.report(done)
        self._finish()
        return TrainingResult(tuple(self.history), resumed, stopped)

    def _exhausted(self) -> bool:
        """Whether so many epochs brought nothing better that training ends."""
        scores = [epoch.score for epoch in self.history if epoch.score is not None]
        patience = self.options.patience
        return bool(patience and scores and len(scores) - 1 - int(np.argmax(scores)) >= patience)

    def _epoch(self, epoch: int) -> Epoch:
        start = time.perf_counter()
        options = self.options
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + epoch)
        torch.manual_seed(options.seed * 1_000_003 + epoch)  # noise that modules draw
        order = torch.randperm(len(self.data), generator=generator)
        self.module.train()
        losses = []
        rate = 0.0
        with activity(f"epoch {epoch} of {options.epochs}", self.steps) as step:
            for index in range(self.steps):
                rate = self._set_rate((epoch - 1) * self.steps + index)
                if self.anneal is not None:
                    self.anneal(((epoch - 1) * self.steps + index) / (self.steps * options.epochs))
                chosen = order[index * options.batch : (index + 1) * options.batch]
                if self.before_step is not None:
                    self.before_step(epoch, index, self.steps)
                losses.append(self._step(chosen, generator))
                if not (index + 1) % 50 or index + 1 == self.steps:
                    self._require_finite(losses, epoch)
                step()
        score = None if self.validation is None else self._score(self.validation)
        mean = float(torch.stack(losses).mean())
        return Epoch(epoch, options.epochs, mean, score, rate, time.perf_counter() - start)

    def _step(self, chosen: Any, generator: Any) -> Any:
        options = self.options
        index = moved(chosen, self.device)
        batch = [x[index] for x in self.inputs]
        if options.augment:
            batch[0] = augmented(batch[0], options.crop, generator)
        labels = None if self.labels is None else self.labels[index]
        if options.mixup:
            batch, labels = mixed(batch, labels, self.classes, options.mixup, generator)
        if self.channels_last:
            batch = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in batch]
        loss = self.gradients(batch, labels)
        if options.clip:
            torch.nn.utils.clip_grad_norm_(
                [p for group in self.optimizer.param_groups for p in group["params"]], options.clip
            )
        self.optimizer.step()
        self._follow()
        return loss

    def _clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _gradients(self, batch: Sequence[Any], labels: Any) -> Any:
        """The gradients of a step, and its loss."""
        self._clear()
        return self._backward(batch, labels)

    def _backward(self, batch: Sequence[Any], labels: Any) -> Any:
        with self._autocast():
            outputs = _logits(self.module, batch)
        loss = self._loss(outputs.float(), labels, batch)
        if not loss.requires_grad:
            raise TrainingError(
                "the output of the module has no gradient: it does not depend on its parameters, or detaches from them",
                fix="Remove torch.no_grad(), detach() and in-place integers from its forward",
            )
        loss.backward()
        return loss.detach()

    def _loss(self, outputs: Any, labels: Any, batch: Sequence[Any]) -> Any:
        options = self.options
        parts = []
        if options.loss != "distillation":
            if not self.labels_checked:
                self.data.require_classes(outputs.flatten(1).shape[1])
                self.labels_checked = True
            parts.append(F.cross_entropy(outputs.flatten(1), labels))
        if options.loss != "labels":
            with torch.no_grad(), self._autocast():
                goal = _logits(self.teacher, batch).float()
            heat = options.temperature
            parts.append(
                F.kl_div(
                    F.log_softmax(outputs.flatten(1) / heat, 1),
                    F.log_softmax(goal.flatten(1) / heat, 1),
                    reduction="batchmean",
                    log_target=True,
                )
                * heat**2
            )
        return sum(parts) / len(parts)

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bfloat16")

    def _require_finite(self, losses: Sequence[Any], epoch: int) -> None:
        if not bool(torch.stack(list(losses[-50:])).isfinite().all()):
            raise TrainingError(
                f"the loss is not a finite number in epoch {epoch}",
                fix="Lower the learning rate, clip the gradient (clip: 1.0), and check that inputs are finite",
            )

    def _set_rate(self, step: int) -> float:
        total = self.steps * self.options.epochs
        warm = self.options.warmup * total
        fall = 0.5 * (1 + math.cos(math.pi * max(step - warm, 0) / max(total - warm, 1)))
        share = (step + 1) / (warm + 1) if step < warm else fall
        self.done = step
        for group, factor in zip(self.optimizer.param_groups, self.factors, strict=True):
            group["lr"] = self.options.rate * factor * share
        return self.options.rate * share

    def _follow(self) -> None:
        """Move the averages of the parameters towards them; faster at the begin, where there is little to keep."""
        if not self.average:
            return
        decay = min(self.options.ema, (1 + self.done) / (10 + self.done))
        with torch.no_grad():
            live = dict(self.module.named_parameters())
            torch._foreach_lerp_(
                list(self.average.values()), [live[name].detach() for name in self.average], 1 - decay
            )

    def _learned(self) -> dict[str, Any]:
        """The parameters that count: their averages, or as they are."""
        if self.average:
            return {name: tensor.clone() for name, tensor in self.average.items()}
        live = self.module.named_parameters()
        return {name: parameter.detach().clone() for name, parameter in live if parameter.requires_grad}

    def _score(self, data: TrainingData) -> float:
        live = {name: parameter.detach().clone() for name, parameter in self.module.named_parameters()}
        if self.average:
            _assign(self.module, self.average)
        if data.labels is not None:
            score = accuracy(self.module, data, self.device)
        else:
            assert self.teacher is not None
            goal = predictions(self.teacher, data, self.device)
            score = -float(F.mse_loss(predictions(self.module, data, self.device), goal))
        if self.average:
            _assign(self.module, live)
        return score

    def _finish(self) -> None:
        if self.options.keep == "best" and self.best:
            _assign(self.module, self.best)
        elif self.average:
            _assign(self.module, self.average)
        self.module.eval()
        if self.writer is not None:
            self.writer.close()

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        tensors, plain = optimizer_state(self.optimizer)
        groups = {"module": self.module.state_dict(), "optimizer": tensors}
        if self.average:
            groups["average"] = self.average
        if self.best:
            groups["best"] = self.best
        history = [asdict(epoch) for epoch in self.history]
        state = {"optimizer": plain, "history": history, "options": self._identity()}
        save_checkpoint(self.checkpoint, Checkpoint(state, groups))

    def _identity(self) -> dict[str, Any]:
        """The options that have to be the same when a run goes on."""
        chosen = self.options.model_dump(exclude={"device", "cuda_graph", "patience", "keep"})
        return {**chosen, "samples": len(self.data), **self.settings}

    def _resume(self) -> int:
        if self.checkpoint is None or not self.checkpoint.exists():
            return 0
        saved = load_checkpoint(self.checkpoint)
        own, other = self._identity(), saved.state.get("options", {})
        changed = sorted(key for key in own if own[key] != other.get(key))
        if changed:
            raise UsageError(
                f"{self.checkpoint} is of a run with other options ({', '.join(changed)})",
                fix="Give the same options, or another checkpoint",
            )
        try:
            self.module.load_state_dict(saved.tensors.get("module", {}))
        except RuntimeError as error:
            raise UsageError(
                f"{self.checkpoint} is of another network",
                fix="Give the network that it was trained with, or another checkpoint",
            ) from error
        except TrainingError as error:
            raise UsageError(f"{self.checkpoint} does not fit: {error.message}", fix=error.fix) from error
        restore_optimizer(self.optimizer, saved.tensors.get("optimizer", {}), saved.state["optimizer"])
        for name in self.average:
            self.average[name] = saved.tensors["average"][name].to(self.device)
        self.best = {name: tensor.to(self.device) for name, tensor in saved.tensors.get("best", {}).items()}
        self.history = [Epoch(**fields) for fields in saved.state["history"]]
        return len(self.history)

    def _log(self, epoch: Epoch) -> None:
        if self.writer is None:
            return
        self.writer.add_scalar("loss", epoch.loss, epoch.epoch)
        self.writer.add_scalar("rate", epoch.rate, epoch.epoch)
        if epoch.score is not None:
            self.writer.add_scalar("validation", epoch.score, epoch.epoch)


def _assign(module: Any, parameters: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in parameters:
                parameter.copy_(parameters[name])


def _optimizer(options: TrainingOptions, groups: list[dict[str, Any]]) -> Any:
    if options.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=options.rate, weight_decay=options.weight_decay)
    return torch.optim.SGD(
        groups, lr=options.rate, momentum=0.9, nesterov=True, weight_decay=options.weight_decay
    )


def _writer(log_dir: Path | str | None) -> Any:
    """What writes event files of TensorBoard; None if there is no folder, or no TensorBoard."""
    if log_dir is not None:
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            return SummaryWriter(str(log_dir))
    return None
