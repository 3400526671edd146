"""The simulator: the gateway's own engine on virtual time, fed from a trace.

Nothing of the scheduling lives here: `driver` holds the clock, `trace`, `cameras` and `events` the cameras,
`execution` the device, `report` the figures.
"""
