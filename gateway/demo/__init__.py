"""`framegate demo`: the product doing its job on real video, with the proof."""
