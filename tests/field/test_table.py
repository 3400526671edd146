"""`docs/field-reports.md` is complete: every report has its row, and every test that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "field-reports.md"
#: The reports' own numbers.
NUMBERS = [
    *(1, 3, 4, 6, 7, 8, 10, 12, 13, 14, 15, 16, 18, 19, 21, 22, 24, 26, 27, 28, 30, 31, 32, 35, 36, 37, 38, 40, 42, 43),
    *(44, 45, 46, 48, 49, 50, 51),
]
#: It belongs to deployment.
NOT_BUILT = {50}
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows():
    """Return the cells of each report's row, by number."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return {int(cells[0]): cells[1:] for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)}


@cache
def functions(path):
    return {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_report_has_its_row():
    assert list(rows()) == NUMBERS
    assert {len(cells) for cells in rows().values()} == {3}


def test_every_test_that_is_named_exists():
    """Those of the page's text as well as those of its table."""
    named = NAMED.findall(PAGE.read_text())
    assert len(named) == PAGE.read_text().count("::"), "a test is named in a form that this one does not read"
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


@pytest.mark.parametrize("number", NUMBERS)
def test_every_report_is_decided_and_tested(number):
    _, _, tests = rows()[number]
    if number in NOT_BUILT:
        assert tests == "not built yet"
        return
    assert NAMED.search(tests)
