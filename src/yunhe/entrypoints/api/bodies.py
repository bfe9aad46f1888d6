"""How JSON bodies are read."""

from typing import Any

from litestar import Request

from yunhe.kernel.validation import read_json


class StrictRequest(Request[Any, Any, Any]):
    """Decodes a body straight into the type its handler asks for, and tells all that is wrong at once."""

    async def json(self) -> Any:
        """Return the body as the handler's ``data``."""
        field = self.route_handler.parsed_data_field
        body = await self.body()
        return read_json(body, object if field is None else field.annotation)
