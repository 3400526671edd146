"""Computes what Keras itself answers, in a process of its own: ``python keras_reference.py IN.npz OUT.npz MODEL...``.

For pictures of 224 x 224 that is the untouched network of `keras.applications` behind Keras's own preprocessing;
for other sizes, which that network does not take, the model that was exported.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from gateway.zoo.keras_models import NATIVE, original, prepare_like_keras, servable
from gateway.zoo.registry import find


def main(source: str, target: str, *names: str) -> None:
    answers = {}
    with np.load(source) as pictures:
        for name in names:
            spec = find(name)
            network = original(spec, "random", 0)
            exported = servable(spec, network)
            for key, batch in pictures.items():
                if batch.shape[1:3] == (NATIVE, NATIVE):
                    answers[f"{name}/{key}"] = network.predict(prepare_like_keras(spec, batch), verbose=0)
                else:
                    answers[f"{name}/{key}"] = exported.predict(batch, verbose=0)
    np.savez(target, **answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
