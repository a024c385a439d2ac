"""The log of a bandit as a file: rewarded decisions, in the format of `undertow replay`."""

import tempfile
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from undertow.serve.endpoints import refusal
from undertow.serve.problems import HttpError, NotFoundError
from undertow.serve.service import Service
from undertow.store.past import log_of
from undertow.support.checks import needing

__all__ = ["Download"]

_KINDS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class Download:
    """Files of a bandit."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Response:
        """Answer with a file."""
        name, kind = request.path_params["name"], request.path_params["kind"]
        try:
            self._service.check_role(request.scope, "read")
            if kind not in _KINDS:
                raise NotFoundError(f"path: expected log.csv or log.parquet, got log.{kind:.20}")
            content = await self._service.run(self._written, name, kind)
        except Exception as error:
            return refusal(error)
        place = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.{kind}"}
        return Response(content, headers=place, media_type=_KINDS[kind])

    def _written(self, name: str, kind: str) -> bytes:
        try:
            with needing("a download", "study"):
                import polars as pl

                from undertow.support.folders import write_csv
        except ModuleNotFoundError as error:
            raise HttpError(501, "not installed", f"path: {error}") from error
        self._service.bandits.spec(name)
        table = pl.DataFrame(log_of(self._service.bandits.store, name))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "log"
            if kind == "csv":
                write_csv(file, table)
            else:
                table.write_parquet(file)
            return file.read_bytes()
