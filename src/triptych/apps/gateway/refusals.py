"""What the gateway refuses, as OpenAI's API writes an error.

{"error": {"message": ..., "type": "invalid_request_error", "param": "n", "code": "too_many_rows"}}
"""

from typing import Any

from starlette.responses import JSONResponse

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class Refused(Exception):
    """A request that gets no answer.

    param         the field that is wrong, where one is
    code          a word for programs
    retry_after   seconds after which the same request may be answered
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = retry_after

    def as_json(self) -> dict[str, Any]:
        """The body of the answer."""
        server = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _TYPES.get(self.status, server)
        said = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": said}

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.as_json(), self.status, headers)


def wrong(param: str | None, message: str, code: str = "invalid_value") -> Refused:
    """A field of a request that is wrong."""
    return Refused(400, message, code=code, param=param)
