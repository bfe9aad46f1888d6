"""Pages for readers are finished: nothing in them was meant to be filled in later."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_page_holds_a_placeholder():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 20
    assert [
        page.name for page in pages if re.search(r"@@|\bTODO\b|\bTBD\b|\bFIXME\b", page.read_text())
    ] == []
