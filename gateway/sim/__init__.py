"""The same engine on virtual time."""
