"""Where a cluster is and who we are to it, as kubectl would read it."""

import base64
import binascii
import os
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from yunhe.kernel.errors import FieldProblem, InvalidInputError

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints credentials."""

    api_version: str
    argv: tuple[str, ...]
    environment: dict[str, str] = {}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to speak to one API server; what is a file is read when it is needed, for it may change."""

    name: str
    server: str
    authority: bytes = b""
    """Certificates to trust, PEM; empty: those of the system."""
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = ""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    token_file: str = ""
    exec_plugin: ExecPlugin | None = None


def read_access(context: str, path: str = "") -> Access:
    """Return the access that *context* of the kubeconfig at *path* gives; empty: the current one, kubectl's own file."""
    if context == IN_CLUSTER:
        return _in_cluster()
    file = Path(path or _default_path()).expanduser()
    config = _load(file)
    name = context or str(config.get("current-context") or "")
    if not name:
        raise _invalid("address", f"{file} has no current context: name one", "")
    chosen = _named(config, "contexts", "context", name, file)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster", "")), file)
    user = _named(config, "users", "user", str(chosen.get("user", "")), file) if chosen.get("user") else {}
    return _access(name, cluster, user, file.parent)


def _default_path() -> str:
    """Return the first file that kubectl would read."""
    return os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"


def _load(file: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(file.read_text())
    except OSError as error:
        raise _invalid("kubeconfig", f"cannot be read: {error.strerror}", str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _invalid("kubeconfig", f"is not YAML: {error}", str(file)) from None
    if not isinstance(config, dict):
        raise _invalid("kubeconfig", "is not a kubeconfig", str(file))
    return cast("dict[str, Any]", config)


def _named(config: dict[str, Any], group: str, kind: str, name: str, file: Path) -> dict[str, Any]:
    entries = config.get(group) or []
    for entry in entries:
        if entry.get("name") == name:
            return entry.get(kind) or {}
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise _invalid(kind, f"{file} has no {kind} of this name; it has {known}", name)


def _access(name: str, cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> Access:
    refused = [
        word
        for word in ("auth-provider", "as", "as-groups", "as-uid", "username", "password")
        if word in user
    ]
    if refused:
        raise _invalid(
            "user", f"{', '.join(refused)} is not supported: use a certificate, a token or exec", name
        )
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise _invalid("cluster.server", "is not an address", server)
    token_file = str(user.get("tokenFile", ""))
    return Access(
        name=name,
        server=server.rstrip("/"),
        authority=_data(cluster, "certificate-authority", folder),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        tls_server_name=str(cluster.get("tls-server-name", "")),
        proxy_url=str(cluster.get("proxy-url", "")),
        certificate=_data(user, "client-certificate", folder),
        key=_data(user, "client-key", folder),
        token=str(user.get("token", "")),
        token_file=str(folder / token_file) if token_file else "",
        exec_plugin=_exec_plugin(user["exec"], folder) if "exec" in user else None,
    )


def _data(section: dict[str, Any], name: str, folder: Path) -> bytes:
    """Return what stands in the file itself or in the file it names, relative to its own folder."""
    try:
        if section.get(f"{name}-data"):
            return base64.b64decode(section[f"{name}-data"], validate=True)
        if section.get(name):
            return (folder / str(section[name])).read_bytes()
    except (OSError, binascii.Error) as error:
        raise _invalid(name, f"cannot be read: {error}", str(section.get(name, "data"))) from None
    return b""


def _exec_plugin(section: dict[str, Any], folder: Path) -> ExecPlugin:
    command = str(section.get("command", ""))
    if not command:
        raise _invalid("user.exec.command", "is empty", "")
    # As kubectl does: a path with a slash is relative to the kubeconfig, a bare name is looked up in PATH.
    program = str(folder / command) if "/" in command else command
    return ExecPlugin(
        api_version=str(section.get("apiVersion", "client.authentication.k8s.io/v1")),
        argv=(program, *(str(word) for word in section.get("args") or [])),
        environment={str(pair["name"]): str(pair["value"]) for pair in section.get("env") or []},
    )


def _in_cluster() -> Access:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host:
        raise _invalid("address", "this process runs in no pod: name a context instead", IN_CLUSTER)
    try:
        authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    except OSError as error:
        raise _invalid("address", f"the pod has no service account: {error}", IN_CLUSTER) from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        name=IN_CLUSTER, server=server, authority=authority, token_file=str(SERVICE_ACCOUNT / "token")
    )


def _invalid(field: str, problem: str, value: str) -> InvalidInputError:
    return InvalidInputError(
        f"The kubeconfig cannot be used: {field} {problem}.",
        remedy="kubectl --context NAME get nodes should work; give --option kubeconfig=PATH and the context's name.",
        fields=(FieldProblem(field, problem, value or None),),
    )
