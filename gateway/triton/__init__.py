"""The only place that talks to Triton: client, embedded server, model configuration."""
