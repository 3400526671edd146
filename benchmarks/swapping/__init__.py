"""The parts of `benchmarks.swap`."""
