"""The Python client of the API, sync and async."""

from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.entrypoints.client.errors import ServerUnreachableError
from yunhe.entrypoints.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "ServerUnreachableError"]
