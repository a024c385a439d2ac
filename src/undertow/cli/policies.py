"""`undertow policies`: every registered policy."""

import json
from typing import Any

from undertow.cli.common import AsJson, app, console


@app.command()
def policies(as_json: AsJson = False) -> None:
    """List all policies with their parameters, claims and citations."""
    from undertow.policies import registry

    entries = registry()
    if as_json:
        for name, entry in entries.items():
            parameters = {key: None if value is ... else _plain(value) for key, value in entry.parameters.items()}
            row = {"name": name, "parameters": parameters, "claims": entry.claims._asdict(), "citation": entry.citation}
            print(json.dumps(row))
        return
    screen = console()
    for name, entry in entries.items():
        summary = (entry.policy.__doc__ or "").strip().splitlines()[0]
        claims = [key.replace("_", " ") for key, value in entry.claims._asdict().items() if value]
        shown = [
            key if default is ... else f"{key}={_plain(default)!r}"
            for key, default in entry.parameters.items()
            if key not in ("arms", "max_pending", "rng", "context_dim", "context_first")
        ]
        screen.print(f"[bold]{name}[/]  {summary}", highlight=False)
        screen.print(f"    parameters: {', '.join(shown) or 'none'}", highlight=False, markup=False)
        screen.print(f"    claims: {', '.join(claims) or 'nothing'}", highlight=False)
        screen.print(f"    {entry.citation}\n", highlight=False, style="dim")


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value
