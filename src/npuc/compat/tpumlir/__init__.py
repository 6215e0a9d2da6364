"""SOPHGO TPU-MLIR: its commands and TpuLang on npuc."""

from npuc.compat.vendor import Vendor

VENDOR = Vendor(
    name="tpumlir",
    title="SOPHGO TPU-MLIR",
    page="migrate-tpu-mlir.md",
    commands={
        "model_transform.py": "npuc.compat.tpumlir.transform_command:main",
        "run_calibration.py": "npuc.compat.tpumlir.calibration_command:main",
        "run_qtable.py": "npuc.compat.tpumlir.qtable_command:main",
        "model_deploy.py": "npuc.compat.tpumlir.deploy_command:main",
        "model_runner.py": "npuc.compat.tpumlir.runner_command:main",
        "model_eval.py": "npuc.compat.tpumlir.eval_command:main",
        "npz_tool.py": "npuc.compat.tpumlir.npz_tool:main",
        "visual.py": "npuc.compat.tpumlir.visual_command:main",
        "my_converter.py": "npuc.compat.tpumlir.transform_command:main",
        "run_model.py": "npuc.compat.tpumlir.regression_command:main",
        "run_eval.py": "npuc.compat.tpumlir.accuracy_command:main",
        "run_all.sh": "npuc.compat.tpumlir.regression_command:run_all",
    },
    modules={
        "mqbench.convert_deploy": "npuc.compat.tpumlir.mqbench",
        "mqbench.prepare_by_platform": "npuc.compat.tpumlir.mqbench",
        "mqbench.utils.state": "npuc.compat.tpumlir.mqbench",
        "transform.TpuLang": "npuc.compat.tpumlir.tpulang",
    },
    option_names={"--outputs": "--output_names", "--input-shape": "--input_shapes"},
)
