"""What the sections of the config share: strictness, and the types of paths and "one or many"."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A mapping of the config: unknown keys, NaN and wrong types are refused; values are fixed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def wrong_type(expected: str) -> PydanticCustomError:
    """The error for a value that is of none of several types; completes "expected ..."."""
    return PydanticCustomError("wrong_type", "{expected}", {"expected": expected})


def as_path(value: Any) -> Any:
    """Text as a Path; the empty text would silently mean the config's own folder."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise wrong_type("a path")
    return Path(value)


def one_or_many(value: Any) -> Any:
    """One mapping for a list of one."""
    return [value] if isinstance(value, (dict, BaseModel)) else value


FilePath = Annotated[Path, BeforeValidator(as_path, json_schema_input_type=str)]
