"""The OpenAPI document: what the views say, plus what holds for all of them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView

from perfdb.api.problems import MEDIA_TYPE

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and where."},
        "instance": {"type": "string"},
    },
    "example": {
        "type": "about:blank",
        "title": "Does not fit",
        "status": 422,
        "detail": "Expected `float`, got `str` - at `$.launches[0].runs[0].metrics[0].samples[1]`",
        "instance": "/api/v1/projects/lab/uploads",
    },
}
UPLOAD_EXAMPLE = {
    "commit": {"sha": "0123456789abcdef0123456789abcdef01234567"},
    "branch": "main",
    "pool": "default",
    "launches": [
        {
            "environment": {"class": {"gpu_model": "H100"}, "boundary": {"driver": "570"}, "info": {}},
            "runs": [
                {
                    "benchmark": "rmsnorm",
                    "params": {"rows": 4096},
                    "metrics": [
                        {"name": "time", "unit": "us", "lower_is_better": True, "samples": [10.0, 10.5, 10.2]}
                    ],
                }
            ],
        }
    ],
}
_BIGGEST = 2**63 - 1


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped base
    """`Authorization: Bearer pdb_...`."""

    target_class = "perfdb.api.access.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Every operation answers an error with a problem document; ids fit 64 bits; the upload has its example."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    answer = {
        "description": "What is wrong, as RFC 9457 problem details",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for path, methods in result["paths"].items():
        for operation in methods.values():
            operation["responses"]["default"] = answer
            operation["responses"].setdefault("304", {"description": "Not modified (If-None-Match)"})
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["schema"].get("type") == "integer":
                    parameter["schema"] |= {"minimum": 0, "maximum": _BIGGEST}
        if path.endswith("/uploads"):
            content = methods["post"]["requestBody"]["content"]["application/json"]
            content["example"] = UPLOAD_EXAMPLE
    return result


class DocumentView(SpectacularAPIView):
    """OpenAPI 3.1 of this API."""

    custom_settings: Any = {"POSTPROCESSING_HOOKS": ["perfdb.api.document.complete"]}  # noqa: RUF012  (as the base)
