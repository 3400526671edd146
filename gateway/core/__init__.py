"""Scheduling, pure: no clock, no await, no I/O, no pixels."""
