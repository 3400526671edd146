"""The parts of `benchmarks.dataplane`."""
