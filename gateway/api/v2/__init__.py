"""The Open Inference Protocol, as Triton speaks it: `/v2`."""
