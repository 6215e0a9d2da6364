"""Post-processing that is appended to a network at import: `--add-postprocess yolov5`.

`options` reads what the user asks for, `nodes` collects ONNX nodes and appends them as `top.onnx` (they stay float and run on
the CPU), `heads` decodes the outputs of detectors, `select` suppresses boxes, `append` puts it together. The arithmetic is that
of `npuc.runtime.postprocess`.
"""

from npuc.frontend.postprocess.append import add_postprocess
from npuc.frontend.postprocess.nodes import remove_nodes
from npuc.frontend.postprocess.options import KINDS, PostprocessOptions

__all__ = ["KINDS", "PostprocessOptions", "add_postprocess", "remove_nodes"]
