"""`undertow serve`: decisions over HTTP."""

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.common import Module, app, load_module
from undertow.errors import InvalidInputError
from undertow.support.checks import needing

if TYPE_CHECKING:
    from undertow.serve.run import Plan


@app.command()
def serve(
    url: Annotated[
        str | None, typer.Argument(help="sqlite:///file.db or postgresql://user@host/database.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; all but loopback need tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of processes.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Concurrent calls per worker.", show_default="80 among all workers, at least 8"
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="File with a role (read, play, admin) and a token per line.", show_default="UNDERTOW_TOKENS"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Accepted host name; repeat for several, * for any."),
    ] = None,
    access_log: Annotated[bool, typer.Option(help="Log a line for each request.")] = True,
    demo: Annotated[bool, typer.Option("--demo", help="Serve recorded data that keep coming in.")] = False,
    module: Module = None,
) -> None:
    """Serve the bandits of a store over HTTP, with a page that shows their forecasts."""
    load_module(module)
    with needing("undertow serve", "serve"):
        from undertow.serve.run import Plan
    with contextlib.ExitStack() as until_the_end:
        if url is None:
            if not demo:
                raise InvalidInputError("url: expected the address of a store, such as sqlite:///shop.db, or --demo")
            folder = until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="undertow-demo-"))
            url = f"sqlite:///{folder}/demo.db"
        secrets = None if tokens is None else str(tokens)
        _run(Plan(url, host, port, workers, secrets, tuple(allow_host or ()), threads, access_log), demo=demo)


def _run(plan: "Plan", *, demo: bool) -> None:
    """Print an example call, then serve."""
    from undertow.serve.demo import play
    from undertow.serve.run import listen, run

    bound = listen(plan)
    shown = f"[{plan.host}]" if ":" in plan.host else plan.host
    address = f"http://{shown}:{bound.getsockname()[1]}"
    print(f"undertow serves {_place(plan.store)} at {address}: open this page in a browser, or try\n")
    asks = "" if plan.tokens is None else " -H 'authorization: Bearer TOKEN'"
    header, body = f"-H 'content-type: application/json'{asks}", '{"policy": "autopilot", "arms": ["bike", "van"]}'
    print(f"  curl -X PUT {address}/v1/bandits/courier {header} -d '{body}'\n", flush=True)
    if demo:
        play(plan.store)
    run(plan, bound)


def _place(url: str) -> str:
    """Return an address without its password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
