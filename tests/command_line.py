"""The command line as a test calls it: with a store of its own, in this process."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import perdure
from perdure.cli.exits import Exit
from perdure.cli.main import cli

__all__ = ["Line"]


class Line:
    """The command line with the store of a test."""

    def __init__(self, folder: Path) -> None:
        self.location = folder / "store"

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["--store", str(self.location), *arguments])

    def json(self, *arguments: str, ends: Exit = Exit.OK) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == ends, result.output
        return json.loads(result.stdout)

    def error(self, *arguments: str) -> dict[str, Any]:
        result = self(*arguments, "--json")
        error: dict[str, Any] = json.loads(result.stderr)["error"]
        assert error["exit"] == result.exit_code
        return error

    def log(self, session: str) -> Path:
        with perdure.open(self.location) as store:
            return Path(str(store.locate(session)))
