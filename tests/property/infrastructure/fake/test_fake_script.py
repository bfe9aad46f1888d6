"""A script the fake understands means what it means in sh."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.infrastructure.fake.directory import FakeDirectory
from yunhe.infrastructure.fake.script import World, parse, run

ENVS = {"A": "plain", "B": "two  words", "C": "", "D_1": "$A `id` 'q' *"}

bare = st.text("abz09_./:,=+%@", min_size=1, max_size=6)
quoted = st.lists(
    st.sampled_from(["a", " ", "$A", "${B}", "$C", "$D_1", "$MISSING", "*", ";", "|", "'", "#", "运"]),
    max_size=5,
).map(lambda parts: f'"{"".join(parts)}"')
words = st.lists(bare | quoted, max_size=4).map(" ".join)
names = st.sampled_from(["f", "g.txt", "h"])
lines = st.one_of(
    words.map(lambda text: f"echo {text}"),
    st.tuples(words, st.sampled_from([">", ">>"]), names).map(lambda parts: f"echo {' '.join(parts)}"),
    names.map(lambda name: f"cat {name}"),
    names.map(lambda name: f"touch {name}"),
    st.tuples(bare | quoted, bare | quoted).map(lambda sides: f"test {' = '.join(sides)}"),
    st.sampled_from(
        ["true", "false", "", "# nothing", "echo x # said", "sleep 0", "sleep 0.001", 'trap "" TERM']
    ),
)
ends = st.one_of(st.just(""), st.just("exit"), st.integers(0, 255).map(lambda code: f"exit {code}"))


def in_fake(script: str) -> tuple[bytes, int, dict[str, bytes]]:
    output = bytearray()
    directory = FakeDirectory()
    process = run(parse(script), World(envs=ENVS, directory=directory, write=output.extend, cores=lambda: 1))
    exit_code: int | None = None
    while exit_code is None:
        try:
            next(process)
        except StopIteration as ended:
            exit_code = ended.value
    files = {name: data for name in ("f", "g.txt", "h") if (data := directory.read(name)) is not None}
    return bytes(output), exit_code, files


def in_sh(script: str) -> tuple[bytes, int, dict[str, bytes]]:
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env={"PATH": os.environ["PATH"], **ENVS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.stdout, done.returncode, {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@given(st.tuples(st.lists(lines, max_size=8), ends).map(lambda parts: "\n".join([*parts[0], parts[1]])))
@settings(max_examples=150, deadline=None)
def test_the_fake_and_sh_agree_on_every_script_the_fake_accepts(script: str) -> None:
    assert in_fake(script) == in_sh(script)
