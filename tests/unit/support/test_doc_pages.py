"""How the pages are read and compared: what differs from a page is noticed, and only that."""

import pytest

from support.doc_pages import Command, File, blocks, matches

PRINTED = ["hello from vm", "✓ succeeded in 0.2 s   used 0.01 core-s, 1 MiB peak", "  cost ¥0.0012"]


def only_command(page: str) -> Command:
    (command,) = (step for block in blocks(page) for step in block.steps())
    assert isinstance(command, Command)
    return command


def test_what_is_printed_as_shown_matches_whatever_its_blanks() -> None:
    assert matches(["hello   from vm", *PRINTED[1:]], PRINTED, [])


@pytest.mark.parametrize(
    "shown",
    [
        ["hello from here", *PRINTED[1:]],
        PRINTED[:2],
        PRINTED[1:],
        [*PRINTED, "more"],
        [PRINTED[1], PRINTED[0], PRINTED[2]],
        [PRINTED[0], PRINTED[1].replace("0.2", "0.3"), PRINTED[2]],
    ],
    ids=[
        "another word",
        "an end is missing",
        "a beginning is missing",
        "too much",
        "order",
        "another figure",
    ],
)
def test_another_output_does_not_match(shown: list[str]) -> None:
    assert not matches(shown, PRINTED, [])


def test_an_ellipsis_stands_for_text_in_a_line_and_alone_for_lines() -> None:
    assert matches(["hello from …", "…"], PRINTED, [])
    assert matches(["…", "cost ¥0.0012"], PRINTED, [])
    assert not matches(["hello from …", "cost …"], PRINTED, [])


@pytest.mark.parametrize(
    ("kind", "shown", "printed", "other"),
    [
        ("ids", "logs job_1m7krmzxga0jx0nma6v", "logs job_1m7krn3wpyze9tdqtct", "logs hello"),
        ("times", "in 0.2 s at 03:26:35", "in 12.5 s at 23:00:01", "in 0.2 at 03:26:35"),
        ("figures", "2 cores, ¥0.06 of 5 GiB", "16 cores, ¥1,000.00 of 23.5 GiB", "2 cores, ¥0.06 of all"),
        ("figures", "used 0.01 core-s, 1 MiB peak", "used 0.00 core-s", "used nothing"),
        ("hosts", "hello from vm", "hello from build-7", "hello vm"),
        ("limits", "lab cgroup v1 ready", "lab rlimits and nice ready", "lab cgroups ready"),
    ],
)
def test_a_value_of_a_kind_that_varies_need_only_be_of_that_kind(
    kind: str, shown: str, printed: str, other: str
) -> None:
    assert matches([shown], [printed], [kind])
    assert not matches([shown], [printed], [])
    assert not matches([shown], [other], [kind])


def test_a_command_must_succeed_unless_the_page_shows_that_it_fails() -> None:
    well, badly = Command(1, "true"), Command(1, "false", ("✗ no",))
    assert (well.problem("", 0), badly.problem("✗ no\n", 3)) == ("", "")
    assert "exit code 3" in well.problem("", 3)
    assert "exit code 0" in badly.problem("✗ no\n", 0)


def test_a_command_that_the_reader_leaves_is_interrupted() -> None:
    left = only_command("```console\n$ tail -f log\none\n^C\n```\n")
    assert "timeout -s INT" in left.script
    assert left.problem("one\n", 124) == ""
    assert left.problem("two\n", 124) != ""


def test_the_notes_before_a_block_are_its_own() -> None:
    page = "<!-- varies: ids, times -->\n```console\n$ a\n```\n\n```console\n$ b\n```\n"
    first, second = (step for block in blocks(page) for step in block.steps())
    assert isinstance(first, Command)
    assert isinstance(second, Command)
    assert (first.varies, first.line) == (("ids", "times"), 3)
    assert (second.varies, second.line) == ((), 7)


def test_a_command_may_go_on_in_the_next_line() -> None:
    assert only_command("```console\n$ cat <<END\n> text\n> END\ntext\n```\n").text == "cat <<END\ntext\nEND"


def test_a_block_that_is_neither_run_nor_marked_is_found() -> None:
    assert [block.idle for block in blocks("```sh\nls\n```\n\n```yaml\nrun: ls\n```\n")] == [True, True]
    assert [block.idle for block in blocks("```console\n$ ls\n```\n\n```text\nany\n```\n")] == [False, False]
    (marked,) = blocks("<!-- not run: needs a cluster -->\n```console\n$ ls\n```\n")
    assert (marked.idle, list(marked.steps()), marked.notes) == (False, [], {"not run": "needs a cluster"})


def test_a_file_is_named_in_its_first_line() -> None:
    (block,) = blocks("```yaml\n# greet.yaml\nrun: ls\n```\n")
    assert list(block.steps()) == [File(1, "greet.yaml", "# greet.yaml\nrun: ls\n")]
