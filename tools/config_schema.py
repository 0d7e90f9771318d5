#!/usr/bin/env python3
"""Print the JSON Schema of the configuration, for editors: config/schema/config.schema.json."""

import json

from tileseer.settings.config import Config


def json_schema() -> str:
    """The schema as it is committed."""
    schema = {**Config.model_json_schema(), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")
