"""Offline measurement of execution times."""
