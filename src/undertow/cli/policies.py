"""`undertow policies` lists or explains registered policies; `undertow precompile` compiles them."""

import json
import textwrap
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.common import AsJson, Module, app, console, load_module, watching
from undertow.errors import InvalidInputError
from undertow.support import checks

if TYPE_CHECKING:
    from undertow.policies import Entry


@app.command()
def policies(
    name: Annotated[
        str | None, typer.Argument(help="Policy to explain, parameter by parameter.", show_default="all, in brief")
    ] = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """List all policies with their parameters, capabilities and citations, or explain one of them."""
    from undertow.policies import registry

    load_module(module)
    entries = registry()
    if name is not None and name not in entries:
        near = checks.did_you_mean(name, entries)
        raise InvalidInputError(f"name: no policy is called {name!r:.60}{near}; known are {', '.join(sorted(entries))}")
    for key, entry in entries.items():
        if name in (None, key):
            if as_json:
                print(json.dumps(_row(entry, explained=name is not None)))
            elif name is None:
                _show(entry)
            else:
                _explain(entry)


@app.command()
def precompile(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[POLICY]...", help="Policies to compile.", show_default="all")
    ] = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Compile policies ahead, for container images and installers; print the folder of their machine code."""
    from undertow.compiled.cache import cache_roots
    from undertow.precompiling import precompile, to_precompile

    load_module(module)
    start, chosen = time.monotonic(), to_precompile(names or ())
    with watching(as_json, "policies", "compiled policies are kept") as (progress, say):

        def show(done: int, total: int) -> None:
            progress(done, total)
            if done < total:
                say(f"compiling {chosen[done]}; after it: {', '.join(chosen[done + 1 :]) or 'none'}")

        folder = precompile(*chosen, progress=show)
    if folder is None:
        raise InvalidInputError(
            "no writable folder for compiled kernels; set NUMBA_CACHE_DIR to one "
            f"(tried: {', '.join(map(str, cache_roots()))})"
        )
    seconds = time.monotonic() - start
    if as_json:
        print(json.dumps({"event": "done", "folder": str(folder), "seconds": seconds}))
    else:
        print(f"kernels: {folder}  ({seconds:.0f} s)")


@app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def warm() -> None:
    """Say the name of today."""
    raise InvalidInputError("warm: it is called precompile since undertow 0.3.0")


def _row(entry: "Entry", *, explained: bool) -> dict[str, Any]:
    from undertow.live.registry import explain

    parameters = {key: None if value is ... else _plain(value) for key, value in entry.parameters.items()}
    row = {
        "name": entry.name,
        "parameters": parameters,
        "capabilities": entry.capabilities._asdict(),
        "citation": entry.citation,
    }
    return row | ({"explained": explain(entry.name)} if explained else {})


def _show(entry: "Entry") -> None:
    screen = console()
    shown = [
        key if default is ... else f"{key}={_plain(default)!r}"
        for key, default in entry.parameters.items()
        if key not in ("arms", "max_pending", "rng", "context_dim", "context_first")
    ]
    screen.print(f"[bold]{entry.name}[/]  {_summary(entry)}", highlight=False)
    screen.print(f"    parameters: {', '.join(shown) or 'none'}", highlight=False, markup=False)
    screen.print(f"    capabilities: {_capabilities(entry)}", highlight=False)
    screen.print(f"    {entry.citation}\n", highlight=False, style="dim")


def _explain(entry: "Entry") -> None:
    from undertow.live.registry import explain

    print(f"{entry.name}: {_summary(entry)}\n")
    for key, text in explain(entry.name).items():
        default = entry.parameters[key]
        print(f"  {key}{' (required)' if default is ... else f' = {_plain(default)!r}'}")
        print(textwrap.fill(text, width=100, initial_indent="      ", subsequent_indent="      "))
    print(f"\ncapabilities: {_capabilities(entry)}\nfrom: {entry.citation}")


def _summary(entry: "Entry") -> str:
    return (entry.policy.__doc__ or "").strip().splitlines()[0]


def _capabilities(entry: "Entry") -> str:
    return ", ".join(key.replace("_", " ") for key, value in entry.capabilities._asdict().items() if value) or "none"


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value
