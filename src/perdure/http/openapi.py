"""The OpenAPI document, generated from the table of operations and the types of the wire.

OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0), whose schemas are those of JSON Schema 2020-12,
which is what msgspec writes.
"""

import re
from typing import Any

import msgspec

from perdure.http.operations import JSON, LIVE, OPERATIONS, Operation
from perdure.http.wire.shapes import ErrorShape

__all__ = ["document"]

_NAMES = re.compile(r"\{([a-z]+)\}")
_REFERENCE = "#/components/schemas/{name}"

_WHAT = {
    "session": "Id of the session; one with other characters than letters, digits, `-`, `_` and "
    "inner dots as `=` and its UTF-8 in base64url.",
    "artifact": "Name of the artifact, written as an id is.",
    "digest": "SHA-256 of the content, 64 hex digits.",
    "conversation": "Id of the conversation.",
}


def document(version: str) -> dict[str, Any]:
    """The document of all operations, as plain values."""
    types = [t for each in OPERATIONS for t in (each.body, each.answer) if t not in (None, bytes)]
    _, components = msgspec.json.schema_components([*types, ErrorShape], ref_template=_REFERENCE)
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "perdure",
            "version": version,
            "description": "Sessions of agents: listed, searched, read, followed and appended to.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(each: Operation, components: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "parameters": [*_path(each), *_query(each, components), *_common(each)],
        "responses": {str(each.status): _success(each), **_failures(each)},
    }
    if each.name == "health":
        told["security"] = []
    if each.body is bytes:
        told["requestBody"] = {"content": {"application/octet-stream": {"schema": {}}}}
    elif each.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _reference(each.body)}},
        }
    return told


def _reference(kind: Any) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _path(each: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _WHAT[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in _NAMES.findall(each.path)
    ]


def _query(each: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    (schema,), found = msgspec.json.schema_components([each.query], ref_template=_REFERENCE)
    own = found.pop(each.query.__name__, schema)
    components |= found
    required = own.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(schema),
            **({"style": "form", "explode": True} if schema.get("type") == "array" else {}),
        }
        for name, schema in own.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of a parameter: it is left out rather than null."""
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(some) == 1:
        rest = {name: told for name, told in schema.items() if name not in ("anyOf", "default")}
        return {**some[0], **rest}
    return schema


def _common(each: Operation) -> list[dict[str, Any]]:
    """Parameters of every operation that goes to a store."""
    if each.name == "health":
        return []
    told: list[dict[str, Any]] = [
        {
            "name": "namespace",
            "in": "query",
            "required": False,
            "description": "A namespace of the store; repeated for one inside another.",
            "style": "form",
            "explode": True,
            "schema": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 8},
        }
    ]
    if each.media == LIVE:
        told.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "The `id` of what was received last.",
                "schema": {"type": "string"},
            }
        )
    return told


def _success(each: Operation) -> dict[str, Any]:
    if each.status == 204:
        return {"description": "Done."}
    schema = _reference(each.answer) if each.answer is not None else {}
    return {"description": "Done.", "content": {each.media: {"schema": schema}}}


def _failures(each: Operation) -> dict[str, Any]:
    """The statuses that a refusal may have; all have the one form."""
    told = {"description": "Refused.", "content": {"application/json": {"schema": _error()}}}
    statuses = {400, 401, 403, 404, 409, 503, 504}
    if each.method != "GET":
        statuses |= {413, 507}
    if "{digest}" in each.path or each.media != JSON:
        # Of an export, too: content that it names may have expired.
        statuses.add(410)
    if each.name == "search":
        # The embedder of the server may be an endpoint of others.
        statuses |= {422, 502}
    return {str(status): told for status in sorted(statuses)}


def _error() -> dict[str, str]:
    return _reference(ErrorShape)
