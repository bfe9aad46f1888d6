"""What a pod brings into its containers: environment and volumes, from ConfigMaps, Secrets and the pod itself."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.kubernetes.kubelet.access import Access, Object
from engines.kubernetes.kubelet.containers import Mount
from engines.kubernetes.kubelet.quantities import parse

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOKEN_VALID_S = 3600


class NotYetError(Exception):
    """Something that the pod names is not there; a kubelet waits for it."""


class Contents:
    """Reads what one pod refers to and lays it out in its folder."""

    def __init__(self, access: Access, pod: Object, folder: Path, address: str) -> None:
        self._access, self._pod, self._folder, self._address = access, pod, folder, address
        self._namespace = f"/api/v1/namespaces/{pod['metadata']['namespace']}"

    async def environment(self, container: Object) -> dict[str, str]:
        """Return the container's environment, on top of what an image would set."""
        values = {"PATH": PATH, "HOME": "/root", "HOSTNAME": self._pod["metadata"]["name"]}
        for source in container.get("envFrom", ()):
            kind = "configMapRef" if "configMapRef" in source else "secretRef"
            data = await self._data(kind.removesuffix("Ref"), source[kind])
            values |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
        for entry in container.get("env", ()):
            if "valueFrom" in entry:
                value = await self._value(entry["valueFrom"], container)
                if value is not None:
                    values[entry["name"]] = value
            else:
                values[entry["name"]] = expand(entry.get("value", ""), values)
        return values

    async def write_volumes(self) -> None:
        """Write every volume of the pod."""
        for volume in self._pod["spec"].get("volumes", ()):
            folder = self._source(volume)
            if "hostPath" not in volume:
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o777)
                await self._write(folder, volume)
            elif volume["hostPath"].get("type") == "DirectoryOrCreate":
                folder.mkdir(parents=True, exist_ok=True)
            elif not folder.exists():
                raise NotYetError(f"hostPath {folder} does not exist")

    def mounts(self, container: Object) -> list[Mount]:
        """Return where the container sees its volumes."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", ())}
        found: list[Mount] = []
        for mount in container.get("volumeMounts", ()):
            source = self._source(volumes[mount["name"]])
            inner = mount.get("subPath", "")
            if inner and not (source / inner).exists():
                (source / inner).mkdir(parents=True)
            found.append(Mount(source / inner, mount["mountPath"], mount.get("readOnly", False)))
        return sorted(found, key=lambda mount: mount.target)

    def _source(self, volume: Object) -> Path:
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        return self._folder / "volumes" / volume["name"]

    async def _write(self, folder: Path, volume: Object) -> None:
        match volume:
            case {"emptyDir": _}:
                return
            case {"configMap": source} | {"secret": source}:
                kind = "configMap" if "configMap" in volume else "secret"
                self._lay_out(folder, await self._data(kind, source), source)
            case {"downwardAPI": source}:
                self._lay_out_fields(folder, source)
            case {"projected": source}:
                for part in source["sources"]:
                    await self._write_projected(folder, part, source.get("defaultMode", 0o644))
            case _:
                kinds = ", ".join(sorted(set(volume) - {"name"}))
                raise NotYetError(f"volume {volume['name']}: the test kubelet knows no {kinds}")

    async def _write_projected(self, folder: Path, part: Object, mode: int) -> None:
        match part:
            case {"serviceAccountToken": source}:
                self._file(folder, source["path"], await self._token(source), mode)
            case {"configMap": source}:
                self._lay_out(folder, await self._data("configMap", source), {"defaultMode": mode} | source)
            case {"secret": source}:
                self._lay_out(folder, await self._data("secret", source), {"defaultMode": mode} | source)
            case {"downwardAPI": source}:
                self._lay_out_fields(folder, {"defaultMode": mode} | source)
            case _:
                raise NotYetError(f"the test kubelet knows no projection of {', '.join(part)}")

    async def _token(self, source: Object) -> bytes:
        """Return a real token for the pod's service account, bound to the pod."""
        pod = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
        spec = {
            "audiences": [source["audience"]] if "audience" in source else [],
            "expirationSeconds": source.get("expirationSeconds", TOKEN_VALID_S),
            "boundObjectRef": reference,
        }
        path = f"{self._namespace}/serviceaccounts/{account}/token"
        answer = await self._access.call("POST", path, {"spec": spec})
        if answer.is_error:
            raise NotYetError(f"no token for service account {account}: {answer.text}")
        return answer.json()["status"]["token"].encode()

    def _lay_out(self, folder: Path, data: Mapping[str, bytes], source: Object) -> None:
        items: list[Object] = source.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            if item["key"] not in data:
                raise NotYetError(f"there is no key {item['key']}")
            self._file(
                folder, item["path"], data[item["key"]], item.get("mode", source.get("defaultMode", 0o644))
            )

    def _lay_out_fields(self, folder: Path, source: Object) -> None:
        for item in source["items"]:
            text = self._field(item["fieldRef"]["fieldPath"])
            self._file(
                folder, item["path"], text.encode(), item.get("mode", source.get("defaultMode", 0o644))
            )

    def _file(self, folder: Path, path: str, content: bytes, mode: int) -> None:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)

    async def _data(self, kind: str, source: Object) -> dict[str, bytes]:
        """Return the data of a ConfigMap or Secret."""
        name = source.get("secretName") or source.get("name", "")
        found = await self._access.get(f"{self._namespace}/{kind.lower()}s/{name}")
        if found is None:
            if source.get("optional"):
                return {}
            raise NotYetError(f"{kind} {name} not found")
        texts = (
            {} if kind == "secret" else {key: text.encode() for key, text in found.get("data", {}).items()}
        )
        coded = found.get("data", {}) if kind == "secret" else found.get("binaryData", {})
        return texts | {key: base64.b64decode(text) for key, text in coded.items()}

    async def _value(self, source: Object, container: Object) -> str | None:
        match source:
            case {"fieldRef": {"fieldPath": path}}:
                return self._field(path)
            case {"resourceFieldRef": {"resource": resource}}:
                kind, _, name = resource.partition(".")
                return str(int(parse(container.get("resources", {}).get(kind, {}).get(name, 0))))
            case {"configMapKeyRef": reference} | {"secretKeyRef": reference}:
                kind = "configMap" if "configMapKeyRef" in source else "secret"
                data = await self._data(kind, reference)
                if reference["key"] not in data and not reference.get("optional"):
                    raise NotYetError(f"{kind} {reference['name']} has no key {reference['key']}")
                return data[reference["key"]].decode() if reference["key"] in data else None
            case _:
                raise NotYetError(f"the test kubelet knows no {', '.join(source)}")

    def _field(self, path: str) -> str:
        found = re.fullmatch(r"metadata\.(labels|annotations)(?:\['(.+)'\])?", path)
        if found:
            entries: dict[str, str] = self._pod["metadata"].get(found.group(1), {})
            if found.group(2):
                return entries.get(found.group(2), "")
            return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
        value: Any = self._pod | {"status": {"podIP": self._address, "hostIP": self._address}}
        for key in path.split("."):
            value = value.get(key, "")
        return str(value)


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by its value where there is one; ``$$`` is a dollar."""

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else values.get(name, found.group(0))

    return re.sub(r"\$(?:\$|\(([^)]+)\))", one, text)
