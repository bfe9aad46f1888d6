"""Pages for readers are finished: nothing in them was meant to be filled in later."""

import re

from support.repository import REPOSITORY


def test_no_page_holds_a_placeholder():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    assert len(pages) > 20
    assert [
        page.name for page in pages if re.search(r"@@|\bTODO\b|\bTBD\b|\bFIXME\b", page.read_text())
    ] == []
