"""The page on running anywhere says what the tests have seen."""

from tools.transcript_page import PAGE, page


def test_the_page_is_what_the_transcript_says_today() -> None:
    assert PAGE.read_text() == page(), "run python tools/transcript_page.py"
