"""Arm China Zhouyi Compass: its parser, optimizer, builder, simulator runs and plugins on npuc."""

from npuc.compat.vendor import Vendor

_HERE = "npuc.compat.compass"

VENDOR = Vendor(
    name="compass",
    title="Arm China Zhouyi Compass",
    page="migrate-compass.md",
    commands={
        "aipubuild": f"{_HERE}.build_command:main",
        "aipuparse": f"{_HERE}.parse_command:main",
        "aipuopt": f"{_HERE}.opt_command:main",
        "aipugb": f"{_HERE}.builder_commands:build_main",
        "aipurun": f"{_HERE}.builder_commands:run_main",
        "aipu_profiler": f"{_HERE}.profiler:main",
        "aipu_simulator_profiler": f"{_HERE}.profiler:simulator_main",
        "aipudumper": f"{_HERE}.dumper:main",
    },
    modules={
        "AIPUBuilder.Parser.plugin_loader": f"{_HERE}.parser_plugins",
        "AIPUBuilder.Parser.plugin_op": f"{_HERE}.parser_plugins",
        "AIPUBuilder.Optimizer.framework": f"{_HERE}.optimizer_plugins",
        "AIPUBuilder.Optimizer.utils": f"{_HERE}.optimizer_utils",
        "AIPUBuilder.Optimizer.logger": f"{_HERE}.logger",
        "AIPUBuilder.core": f"{_HERE}.builder_plugins",
        "AIPUBuilder.core._checker": f"{_HERE}.checker_plugins",
        "AIPUBuilder.plugin_loader": f"{_HERE}.parser_plugins",
        "AIPUBuilder.Profiler": f"{_HERE}.profiler",
    },
)
