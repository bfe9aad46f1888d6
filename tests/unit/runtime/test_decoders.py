"""Types may be decoded by many threads at once from the first moment on."""

import subprocess
import sys
import textwrap

RACE = """
    import sys, threading, types
    import msgspec
    from yunhe.runtime.decoders import build_decoders

    sys.setswitchinterval(1e-6)
    TYPES = "import msgspec\\nclass S0(msgspec.Struct, frozen=True):\\n    a: int = 0\\n" + "".join(
        f"class S{k}(msgspec.Struct, frozen=True):\\n    a: int = 0\\n"
        f"    b: 'tuple[S{k - 1}, ...]' = ()\\n    c: 'S{k - 1} | None' = None\\n"
        for k in range(1, 6)
    )
    for number in range(60):
        module = types.ModuleType(f"fresh{number}")
        sys.modules[module.__name__] = module
        exec(TYPES, module.__dict__)
        assert build_decoders() >= 6
        together = threading.Barrier(8)

        def decode():
            together.wait()
            msgspec.json.decode(b'{"a":1,"b":[{"a":2,"b":[{"a":1}],"c":{"a":3,"b":[{"a":3}]}}]}', type=module.S5)

        threads = [threading.Thread(target=decode) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    command = [sys.executable, "-c", textwrap.dedent(RACE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
