"""The JSON Schema of the config, for editors. What keys mean together is beyond a schema."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from rewardctl.config.schema import ConfigFile


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles of keys, which only repeat them."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a config file, with descriptions and defaults."""
    schema = ConfigFile.model_json_schema(schema_generator=_WithoutTitles)
    return {"$schema": _WithoutTitles.schema_dialect, **schema, "title": "rewardctl config"}
