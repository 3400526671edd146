"""The asyncio driver of the engine: frames in shared memory, jobs to Triton, results to their owners."""
