"""Which site, how its login node is reached, and what the operator says of it."""

from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.host.target import DeclaredNode, HostTarget, LocalHost, option_problem, ssh_host
from yunhe.kernel.units import parse_duration_s

DEFAULT_ROOT = "~/.yunhe/slurm"


class DeclaredSite(DeclaredNode, frozen=True, kw_only=True):
    """What the operator says of a site."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit_s: int = 0
    python: str = ""
    configuration: str = ""
    programs: str = ""

    def arguments(self) -> list[str]:
        """Return this as arguments of the helper."""
        pairs = {
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--time-limit-s": str(self.time_limit_s or ""),
            "--python": self.python,
            "--configuration": self.configuration,
            "--programs": self.programs,
        }
        return [f"{name}={value}" for name, value in pairs.items() if value]


def read_target(target: Target) -> HostTarget:
    """Return the login node with what is declared of its site; refuse options that cannot be meant."""
    options = target.options
    declared = DeclaredSite(
        partition=_word(options, "partition"),
        account=_word(options, "account"),
        qos=_word(options, "qos"),
        time_limit_s=_duration_s(options, "time_limit"),
        python=options.get("python", ""),
        configuration=options.get("slurm_conf", ""),
        programs=options.get("programs", ""),
    )
    root = options.get("root", DEFAULT_ROOT)
    if set(root) & set("%\\\n\0"):
        raise option_problem(
            "root", "must not hold %, a backslash or a line break: Slurm reads them in file names", root
        )
    if not target.address:
        return LocalHost(root=root, declared=declared)
    return ssh_host(target, root=root, python=options.get("login_python", "python3"), declared=declared)


def _word(options: dict[str, str], name: str) -> str:
    text = options.get(name, "")
    if text.startswith("-") or set(text) & set(" ,\t\n\0"):
        raise option_problem(name, "must be one name", text)
    return text


def _duration_s(options: dict[str, str], name: str) -> int:
    text = options.get(name)
    if text is None:
        return 0
    try:
        return round(parse_duration_s(text))
    except ValueError as error:
        raise option_problem(name, str(error), text) from None
