"""How a Python environment is made: by a step before the task's own, as its user, in its limits and its network."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat

STEP = "python"
"""What the step is called."""
LONGEST_BYTES = 1024 * 1024
"""Of a file of requirements."""
_VERSION = 1
"""Of what is built: another one is another content."""
_OWN = re.compile(
    r"\s*(-e|-r|-c|--editable|--requirement|--constraint|--find-links|-f|file:|[./~]|[\w.\[\],-]+\s*@\s*file:)"
)
"""A line that names files of this host or of the task, whose content is not in the line."""


def read_regular(path: str, shown: str) -> bytes:
    """Return the content of a file that must be one; for a process of the task's user."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise OSError(
            fault.errno,
            f"python.requirements: {shown} cannot be read in the job's directory: {fault.strerror}",
        ) from fault
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST_BYTES:
            raise OSError(errno.EINVAL, f"python.requirements: {shown} must be a file of at most 1 MiB")
        return os.read(handle, LONGEST_BYTES)
    finally:
        os.close(handle)


def key_of(
    project: str, version: str, requirements: bytes, environment: dict[str, str], chosen: list[str]
) -> str:
    """Return what is the same for two environments that may be one: never for two projects."""
    shaping = {
        name: environment[name] for name in chosen if name == "PATH" or name.startswith(("PIP_", "UV_"))
    }
    content = [
        _VERSION,
        project,
        version,
        os.uname().machine,
        _system(),
        requirements.decode(errors="replace"),
        shaping,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def names_files(requirements: bytes) -> bool:
    """Return whether any line leads to other files, so that the lines do not say what will be installed."""
    return any(_OWN.match(line) for line in requirements.decode(errors="replace").splitlines())


def _system() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            return "".join(sorted(line for line in file if line.startswith(("ID=", "VERSION_ID="))))
    except OSError:
        return ""


def variables(path: str, version: str, requirements: str, before: str) -> dict[str, str]:
    """Return what the steps of a task see of its environment at *path*; *before* is their PATH without it."""
    return {
        "VIRTUAL_ENV": path,
        "PATH": f"{path}/bin:{before}",
        "YUNHE_PYTHON_VERSION": version,
        "YUNHE_PYTHON_REQUIREMENTS": requirements,
    }


SCRIPT = r"""#!/bin/sh
# Makes the Python environment $VIRTUAL_ENV, by uv where the host has it and by pip where not.
at=$VIRTUAL_ENV version=$YUNHE_PYTHON_VERSION requirements=$YUNHE_PYTHON_REQUIREMENTS
said=${TMPDIR:-/tmp}/yunhe-python.txt
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME
umask 022
say() { printf 'yunhe: %s\n' "$*" >&2; }
versions() {
  for minor in 8 9 10 11 12 13 14 15 16; do command -v "python3.$minor"; done 2> /dev/null |
    sed 's/.*python//' | tr '\n' ' '
}
no_python() {
  has=$(versions)
  say "This host has no Python ${version:-3}, and $1: install it on the host, or ask for one it has (${has:-none})."
  exit 69
}
find_python() {
  minor=$version
  case $version in *.*.*) minor=${version%.*} ;; esac
  for one in ${minor:+"python$minor"} python3; do
    found=$(command -v "$one") || continue
    has=$("$found" -c 'import sys; print("%d.%d.%d." % sys.version_info[:3])') || continue
    case $has in "${version:+$version.}"*) python=$found; return 0 ;; esac
  done
  return 1
}
blame() {
  grep -Ei 'no matching|could not find|not found|no version|only .* available|unsatisfiable|conflict|invalid|expected|failed|error' \
    "$said" > "$said.bad"
  number=0
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    name=$(printf '%s' "$line" | sed -n 's/^[[:space:]]*\([A-Za-z0-9][A-Za-z0-9._-]*\).*/\1/p')
    if [ -n "$name" ] && grep -Eiq "(^|[^A-Za-z0-9._-])$name([^A-Za-z0-9_-]|\$)" "$said.bad"; then
      say "Line $number of ${requirements##*/} cannot be installed: $line"
    fi
  done < "$requirements"
}
install() {
  [ -n "$requirements" ] || return 0
  { "$@" -r "$requirements" 2>&1; echo $? > "$said.code"; } | tee "$said" >&2
  read -r code < "$said.code"
  [ "$code" != 0 ] || return 0
  blame
  exit "$code"
}

say "preparing the Python environment; later jobs of the project find it ready on this node …"
if uv=$(command -v uv); then
  export UV_PYTHON_INSTALL_DIR="$at/python" UV_NO_CACHE=1 UV_NO_CONFIG=1 UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
  if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2> /dev/null)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
  fi
  (cd "$at" && "$uv" -q venv --allow-existing ${version:+--python "$version"} "$at") ||
    no_python "uv could not fetch one"
  install "$uv" pip install --python "$at/bin/python"
else
  find_python || no_python "no uv that could fetch one"
  export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off
  if "$python" -m pip --help 2> /dev/null | grep -q -e --python; then
    "$python" -m venv --without-pip "$at" || exit 1
    install "$python" -m pip --python "$at/bin/python" install
  elif "$python" -c 'import ensurepip' 2> /dev/null; then
    "$python" -m venv "$at" || exit 1
    install "$at/bin/python" -m pip install
  else
    say "$python can make no environments here: install python3-venv or uv on the host."
    exit 69
  fi
fi
for name in pip pip3; do
  [ -e "$at/bin/$name" ] || cat > "$at/bin/$name" << 'END'
#!/bin/sh
echo "This Python environment is shared and read-only: add what is missing to python.requirements of the task." >&2
exit 1
END
  chmod +x "$at/bin/$name"
done
rm -f "$said" "$said.bad" "$said.code"
say "the Python environment is ready."
"""
