"""Draws that depend on a seed and on what they are for, not on how many came before: two drivers see one world."""

from __future__ import annotations

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """Return 64 well-mixed bits (SplitMix64; Steele, Lea and Flood, OOPSLA 2014, doi 10.1145/2660193.2660195)."""
    x = (x + _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def share(seed: int, *keys: int) -> float:
    """Return an even draw from [0, 1) for these keys."""
    bits = mix(seed & _MASK)
    for key in keys:
        bits = mix(bits ^ (key & _MASK))
    return (bits >> 11) / 2**53
