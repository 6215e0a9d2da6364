"""`pegasus generate`: the files that say how samples become inputs, and what is done with outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuc.compat.acuity.input_meta import default_meta, write_meta
from npuc.compat.acuity.model_files import open_model
from npuc.compat.acuity.options import model_options, parser, sub_command
from npuc.compat.acuity.postprocess import default_postprocess
from npuc.compat.running import warn
from npuc.errors import UsageError
from npuc.files import writable, write_atomically
from npuc.words import counted

_WHAT = ("inputmeta", "postprocess-file")


def main(arguments: list[str]) -> int:
    """Run the command."""
    what, rest = sub_command("generate", arguments, _WHAT)
    return _inputmeta(rest) if what == "inputmeta" else _postprocess(rest)


def _inputmeta(arguments: list[str]) -> int:
    own = parser("pegasus generate inputmeta", "Write the inputmeta file of a model.")
    model_options(own, data=False, meta=False)
    own.add("--input-meta-output", help="the file to write; MODEL_inputmeta.yml if left out")
    own.add(
        "--separated-database",
        nargs="?",
        const="True",
        default="False",
        help="a list of samples for each input",
    )
    own.add("--source-file", default="dataset.txt", help="the list of samples; several by #")
    own.add("--channel-mean-value", help="means and a scale: 128 128 128 0.0078125; several inputs by #")
    options = own.parse(arguments)
    model = open_model(options.model)
    if options.separated_database.lower() not in ("true", "false"):
        raise UsageError(f"--separated-database '{options.separated_database}' is neither True nor False")
    separated = options.separated_database.lower() == "true"
    files = [part.strip() for part in options.source_file.split("#")]
    count = len(model.graph.inputs)
    if len(files) > 1 and not separated:
        warn("--source-file names several lists: they are taken as with --separated-database")
        separated = True
    if len(files) not in (1, count):
        raise UsageError(
            f"--source-file names {counted(len(files), 'list')}, and the model has {counted(count, 'input')}"
        )
    values = _channel_values(options.channel_mean_value, count)
    path = writable(options.input_meta_output or f"{model.stem}_inputmeta.yml")
    meta = default_meta(model.graph, model.platform, files, values, separated, path)
    write_meta(meta)
    print(f"Generate input meta file: {path}")
    return 0


def _channel_values(text: str | None, inputs: int) -> list[Sequence[float]]:
    """Means and a scale for each input.

    >>> _channel_values("128 128 128 0.5#1 0 0 2", 2)
    [[128.0, 128.0, 128.0, 0.5], [1.0, 0.0, 0.0, 2.0]]
    """
    if not text:
        return []
    try:
        values = [[float(word) for word in part.replace(",", " ").split()] for part in text.split("#")]
    except ValueError as error:
        raise UsageError(
            f"--channel-mean-value '{text}' is no list of numbers",
            fix="Write it like '128 128 128 0.0078125'",
        ) from error
    if len(values) not in (1, inputs) or any(len(numbers) < 2 for numbers in values):
        raise UsageError(
            f"--channel-mean-value '{text}' does not have means and a scale for {counted(inputs, 'input')}",
            fix="Write it like '128 128 128 0.0078125', with # between inputs",
        )
    return list(values)


def _postprocess(arguments: list[str]) -> int:
    own = parser("pegasus generate postprocess-file", "Write the postprocess file of a model.")
    model_options(own, data=False, meta=False)
    own.add("--postprocess-file-output", help="the file to write; MODEL_postprocess_file.yml if left out")
    options = own.parse(arguments)
    model = open_model(options.model)
    path = writable(Path(options.postprocess_file_output or f"{model.stem}_postprocess_file.yml"))
    with write_atomically(path) as out:
        out.write(default_postprocess(model.graph).encode())
    print(f"Generate postprocess file: {path}")
    return 0
