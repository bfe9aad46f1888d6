"""The seam between sub-modules: a proxy that encodes and decodes every call, as another process would."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import msgspec
import numpy as np

T = TypeVar("T")


def encoded(interface: type[T], service: T) -> T:
    """Return *service* behind a proxy through which only what can be written down passes."""
    methods = {
        name: _wrap(getattr(service, name), get_type_hints(member))
        for name, member in inspect.getmembers(interface, inspect.isfunction)
        if not name.startswith("_")
    }
    return cast(
        "T", type(f"Encoded{interface.__name__}", (), {k: staticmethod(v) for k, v in methods.items()})()
    )


def through(value: Any, kind: Any) -> Any:
    """Return *value* as it would arrive: encoded, then decoded as *kind*."""
    return msgspec.msgpack.decode(
        msgspec.msgpack.encode(value, enc_hook=_encode), type=kind, dec_hook=_decode
    )


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": value.shape, "data": value.tobytes()}
    raise TypeError(f"{type(value)} cannot pass between sub-modules")


def _decode(kind: Any, value: Any) -> Any:
    if (get_origin(kind) or kind) is np.ndarray:
        return np.frombuffer(value["data"], dtype=value["dtype"]).reshape(value["shape"])
    raise TypeError(f"{kind} cannot pass between sub-modules")


def _wrap(method: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    answer = hints.pop("return")
    signature = inspect.signature(method)

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _argument(value, hints[name])
        return bound

    if get_origin(answer) is AbstractAsyncContextManager:
        return method  # a live session: it belongs to the process that opened it
    if get_origin(answer) is AsyncIterator:

        async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            bound = arguments(args, kwargs)
            async for item in method(*bound.args, **bound.kwargs):
                yield through(item, answer.__args__[0])

        return stream

    async def call(*args: Any, **kwargs: Any) -> Any:
        bound = arguments(args, kwargs)
        return through(await method(*bound.args, **bound.kwargs), answer)

    return call


def _argument(value: Any, kind: Any) -> Any:
    if get_origin(kind) is AsyncIterator:
        return _each(value, kind.__args__[0])
    return through(value, kind)


async def _each(items: AsyncIterator[Any], kind: Any) -> AsyncGenerator[Any]:
    async for item in items:
        yield through(item, kind)
