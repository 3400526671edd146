"""Framegate: a soft real-time gateway in front of NVIDIA Triton Inference Server."""
