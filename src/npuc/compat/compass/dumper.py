"""`aipudumper`: the addresses of a program's buffers, written, changed, and run with."""

from __future__ import annotations

from pathlib import Path

from npuc.compat.arguments import VendorParser, comma_list
from npuc.compat.compass.builder_commands import read_raw, run_program
from npuc.errors import UsageError
from npuc.files import existing_file, write_atomically
from npuc.program.file import load_compiled
from npuc.program.relocate import addresses_text, read_addresses, relocate

ADDRESSES = "addr_cfg_default.ini"


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = VendorParser("aipudumper", "Dump or change the addresses of a program, and run it.")
    parser.add("bin", nargs="?", help="the program of aipugb")
    parser.add("-i", "--inputs", default="", help="raw files of the inputs, with commas between")
    parser.add("-o", "--output", default="output.bin", help="where the first output is written")
    parser.add("--dump_addr_cfg", action="store_true", help=f"write the addresses to {ADDRESSES}")
    parser.add("--load_addr_cfg", metavar="INI", help="addresses to run with")
    parser.add(
        "--multi_batch", type=int, default=1, help="how many batches the raw files hold, one behind the other"
    )
    parser.add("-v", "--version", action="store_true", help="the version")
    parser.add_ignored("--simulator", "programs run on npuc's own simulator")
    parser.add_ignored(
        "--multi_core",
        "a program runs on the cores that it was built for, with the same results",
    )
    parser.add_ignored(
        "--disable_gm",
        "a program runs with the shared memory that it was built for (gm_size of aipugb), and its results are the same without",
        action="store_true",
    )
    parser.add_ignored("--ocm_addr", "there is no second memory on the chip")
    parser.add_ignored("--ocm_size", "there is no second memory on the chip")
    options = parser.parse(arguments)
    if options.version:
        import npuc

        print(f"aipudumper (npuc {npuc.__version__})")
        return 0
    if not options.bin:
        raise UsageError("aipudumper needs a program", fix="aipudumper aipu.bin --dump_addr_cfg")
    if options.multi_batch < 1:
        raise UsageError(f"--multi_batch {options.multi_batch} is not 1 or more")
    model = load_compiled(existing_file(options.bin))
    if options.dump_addr_cfg:
        with write_atomically(Path(ADDRESSES)) as out:
            out.write(addresses_text(model).encode())
        print(f"addresses written to {ADDRESSES}")
    if options.load_addr_cfg:
        model = relocate(model, read_addresses(existing_file(options.load_addr_cfg), model))
    if options.inputs:
        batches = read_raw(model, comma_list(options.inputs), options.multi_batch)
        paths = run_program(model, batches, options.output)
        print(f"outputs: {', '.join(map(str, paths))}")
    elif not options.dump_addr_cfg:
        raise UsageError("nothing is asked for", fix="Give --dump_addr_cfg, or -i with raw inputs")
    return 0
