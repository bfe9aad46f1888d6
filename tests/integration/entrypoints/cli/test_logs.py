"""Logs as a person reads them: the last lines, those of a while, with times, of one stream; and nothing cut in silence."""

import hashlib
import json
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from integration.entrypoints.cli.conftest import YUNHE, Shell

SPEAKS = """
name: speaks
resources: {cpus: 0.2, memory: 64MB}
separate_stderr: true
run: |
  for n in 1 2 3; do echo "line $n"; sleep 0.1; done
  echo "loss 0.5" >&2
  sleep 0.1
  echo "line 4"
"""
NOISE = """
name: noise
resources: {cpus: 0.5, memory: 128MB}
log_limit: 1MB
run: python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(7).randbytes(6_000_000))'
"""
WIDE = """
name: wide
resources: {cpus: 1, memory: 256MB}
log_limit: 400MB
run: |
  python3 -c '
  import base64, hashlib, random, sys
  noise = random.Random(11)
  digest = hashlib.sha256()
  for _ in range(200):
      data = base64.encodebytes(noise.randbytes(741_000))
      data = data[:1_000_000]
      digest.update(data)
      sys.stdout.buffer.write(data)
  open("digest", "w").write(digest.hexdigest())
  '
outputs: [digest]
"""


def test_lines_can_be_had_by_their_end_time_words_and_stream(admin: Shell, tmp_path: Path) -> None:
    (tmp_path / "speaks.yaml").write_text(SPEAKS)
    done = admin.inside("run", "-y", tmp_path / "speaks.yaml")
    assert done.returncode == 0, done.stderr
    whole = ["line 1", "line 2", "line 3", "loss 0.5", "line 4"]
    assert admin.inside("logs", "speaks").stdout.splitlines() == whole
    assert admin.inside("logs", "speaks", "--tail", "2").stdout.splitlines() == whole[-2:]
    assert admin.inside("logs", "speaks", "--grep", "lo.s|4").stdout.splitlines() == whole[-2:]
    assert admin.inside("logs", "speaks", "--stream", "stderr").stdout.splitlines() == ["loss 0.5"]
    assert admin.inside("logs", "speaks", "--since", "10m").stdout.splitlines() == whole
    time.sleep(1.1)
    assert admin.inside("logs", "speaks", "--since", "1s").stdout == ""
    stamped = admin.inside("logs", "speaks", "-t", "-n", "1").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z line 4\n", stamped)
    lines = [json.loads(line) for line in admin.inside("logs", "speaks", "-o", "json").stdout.splitlines()]
    assert [line["line"] for line in lines] == whole
    assert [line["stream"] for line in lines] == ["stdout"] * 3 + ["stderr", "stdout"]
    assert sorted(line["at"] for line in lines) == [line["at"] for line in lines]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--grep", "("), "not a regular expression"),
        (("--since", "soon"), "--since"),
        (("--stream", "both"), "stdout or stderr"),
        (("--tail", "-1"), "--tail"),
    ],
)
def test_a_wish_that_cannot_be_understood_is_refused(
    admin: Shell, words: tuple[str, ...], problem: str
) -> None:
    refused = admin.inside("logs", "speaks", *words)
    assert refused.returncode == 2
    assert problem in refused.stderr


def test_what_goes_beyond_the_limit_is_cut_with_a_line_that_says_how_much(
    admin: Shell, tmp_path: Path
) -> None:
    (tmp_path / "noise.yaml").write_text(NOISE)
    submitted = admin.inside("run", "-d", "-y", tmp_path / "noise.yaml", "-o", "json")
    job = json.loads(submitted.stdout)["id"]
    with admin.client() as client:
        list(client.watch(job))
    got = subprocess.run([*YUNHE, "logs", job], env=admin.environment, capture_output=True, check=True).stdout
    whole = random.Random(7).randbytes(6_000_000)
    cuts = [int(said.replace(b",", b"")) for said in re.findall(rb"\[yunhe: ([\d,]+) bytes", got)]
    rest = re.sub(rb"\n?\[yunhe: [\d,]+ bytes of output are missing here[^]]*\]\n", b"", got)
    assert cuts
    assert sum(cuts) + len(rest) == len(whole)
    assert whole.endswith(rest[-500_000:])
    refused = admin.inside("logs", job, "--stream", "stderr")
    assert refused.returncode != 0
    assert "separate_stderr" in refused.stderr


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_200_megabytes_come_through_run_and_logs_byte_by_byte(admin: Shell, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    digests: list[str] = []
    for words in (["run", "-y", str(tmp_path / "wide.yaml")], ["logs", "wide"]):
        with (tmp_path / "got").open("wb") as got:
            done = subprocess.run(
                [*YUNHE, *words],
                env=admin.environment,
                stdout=got,
                stderr=subprocess.PIPE,
                check=False,
                timeout=400,
            )
        assert done.returncode == 0, done.stderr
        data = (tmp_path / "got").read_bytes()
        assert len(data) == 200_000_000
        digests.append(hashlib.sha256(data).hexdigest())
    fetched = admin.inside("cp", "wide:digest", tmp_path / "digest")
    assert fetched.returncode == 0, fetched.stderr
    assert digests == [(tmp_path / "digest").read_text()] * 2
