import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.allocator import ALIGNMENT, Allocator, aligned

SIZE = 4096


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1500)), max_size=80))
def test_blocks_never_overlap_and_free_space_comes_together_again(steps: list[tuple[bool, int]]) -> None:
    allocator = Allocator(SIZE)
    held: dict[int, int] = {}
    for allocate, number in steps:
        if allocate:
            start = allocator.allocate(number)
            if start is None:
                gaps = _gaps(held)
                assert max(gaps, default=0) < aligned(number), "it refused what a free range holds"
                continue
            assert start % ALIGNMENT == 0
            assert start + number <= SIZE
            assert all(start + number <= other or other + size <= start for other, size in held.items())
            held[start] = aligned(number)
        elif held:
            start = sorted(held)[number % len(held)]
            allocator.free(start)
            del held[start]
        assert allocator.free_bytes == SIZE - sum(held.values())
        assert allocator.blocks == len(held)
    for start in held:
        allocator.free(start)
    assert allocator.allocate(SIZE) == 0


def _gaps(held: dict[int, int]) -> list[int]:
    edges = [0, *(edge for start in sorted(held) for edge in (start, start + held[start])), SIZE]
    return [end - start for start, end in zip(edges[::2], edges[1::2], strict=True)]


def test_the_first_range_that_fits_is_taken() -> None:
    allocator = Allocator(SIZE)
    first, second, third = (allocator.allocate(n) for n in (128, 64, 1024))
    allocator.free(first)
    allocator.free(third)
    assert allocator.allocate(64) == first
    assert allocator.allocate(128) == third
    assert second == 128


def test_a_block_is_freed_once() -> None:
    allocator = Allocator(SIZE)
    start = allocator.allocate(1)
    allocator.free(start)
    with pytest.raises(KeyError):
        allocator.free(start)


@pytest.mark.parametrize("size", [0, -1])
def test_a_block_holds_something(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        Allocator(SIZE).allocate(size)


def test_a_range_smaller_than_a_line_holds_nothing() -> None:
    assert Allocator(ALIGNMENT - 1).allocate(1) is None
