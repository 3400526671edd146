"""The Python SDK and the camera agent. They speak HTTP only."""
