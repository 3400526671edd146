"""What the figures in the documentation come from."""
