"""The first second of the command line: `yunhe --help` and others, above what the interpreter itself takes.

Interpreter and command alternate, so that both meet the same machine; the figure is the median of the differences.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
HELP_LIMIT_S = 0.200
YUNHE = "from yunhe.entrypoints.cli.main import main; main()"


def main() -> None:
    """Print the table; fail when help is too slow."""
    rows = [
        (" ".join(["yunhe", *words]), *above_interpreter(words))
        for words in ([], ["--help"], ["--version"], ["run", "--help"])
    ]
    print(f"{'command':<18}{'above interpreter':>20}{'interpreter':>14}   (median of {ROUNDS}, alternating)")
    for name, extra_s, base_s in rows:
        print(f"{name:<18}{extra_s * 1000:>17.0f} ms{base_s * 1000:>11.0f} ms")
    help_s = rows[1][1]
    verdict = "within" if help_s <= HELP_LIMIT_S else "OVER"
    print(f"yunhe --help: {help_s * 1000:.0f} ms, {verdict} the limit of {HELP_LIMIT_S * 1000:.0f} ms")
    if help_s > HELP_LIMIT_S:
        sys.exit(1)


def above_interpreter(words: list[str]) -> tuple[float, float]:
    """Return how much longer the command takes than an interpreter that does nothing, and how long that takes."""
    timed([sys.executable, "-c", YUNHE, *words])  # the first run writes bytecode
    extras: list[float] = []
    bases: list[float] = []
    for _ in range(ROUNDS):
        base = timed([sys.executable, "-c", "pass"])
        extras.append(timed([sys.executable, "-c", YUNHE, *words]) - base)
        bases.append(base)
    return statistics.median(extras), statistics.median(bases)


def timed(command: list[str]) -> float:
    """Return how long *command* takes; it must succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
