"""The bandits of a store, opened on demand; the most recently used ones stay open.

Everything here blocks, and is called in threads; concurrent calls for the same bandit share a commit.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from undertow.compiled.layout import states_of_at_most
from undertow.errors import InvalidInputError
from undertow.live import LivePolicy
from undertow.policies import from_bytes, make, registry
from undertow.serve.bodies import LONGEST_NAME
from undertow.serve.problems import ConflictError, HttpError, NotFoundError
from undertow.store import DurablePolicy, Store
from undertow.store import open as open_bandit
from undertow.store.fleets import FLEET, is_fleet

__all__ = ["Bandits", "require_printable"]

_LARGEST = 2**22  # numbers in the state of a policy that is created over HTTP: 32 MB
_MOST_INPUTS = 1000  # features, or contexts
_SOME = 1000  # bandits that are searched for the policies in use


class Bandits:
    """The bandits of a store, by name.

    Parameters
    ----------
    store
        Their store.
    timeout
        Seconds that a call waits for a bandit locked by others.
    most_open
        Maximum number of open bandits. The least recently used ones are closed first; opening them again takes only
        time.
    most
        Number of bandits from which no more can be created over HTTP.
    """

    def __init__(self, store: Store, *, timeout: float = 5.0, most_open: int = 1000, most: int = 1_000_000) -> None:
        self.store = store
        self._timeout, self._most_open, self._most = timeout, most_open, most
        self._open: OrderedDict[str, DurablePolicy] = OrderedDict()
        self._guard = threading.Lock()

    def __getitem__(self, name: str) -> DurablePolicy:
        """Return an existing bandit."""
        with self._guard:
            if (found := self._open.get(name)) is not None:
                self._open.move_to_end(name)
                return found
        self.spec(name)
        opened = open_bandit(self.store, name, timeout=self._timeout)
        with self._guard:
            found = self._open.setdefault(name, opened)
            while len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return found

    def spec(self, name: str) -> dict[str, Any]:
        """Return policy and parameters of a bandit; refuse unknown names."""
        content = self.store.spec(name) if name.isprintable() and len(name) <= LONGEST_NAME else None
        if content is None:
            raise NotFoundError(f"name: there is no bandit {name!r:.100}; create it with PUT, or see GET /v1/bandits")
        spec: dict[str, Any] = json.loads(content)
        if spec["policy"] == FLEET:
            raise NotFoundError(f"name: {name!r} is a fleet, which is not served; open it with undertow.open")
        return spec

    def create(self, name: str, policy: str, arms: Sequence[str], parameters: dict[str, Any]) -> bool:
        """Create a bandit, and return whether it is new; refuse another one of the same name."""
        made = _made(policy, arms, parameters)
        if self.store.spec(name) is None:
            if len(self.store.names()) >= self._most:
                raise HttpError(409, "full", f"name: there are {self._most} bandits, and no more can be created")
            open_bandit(self.store, name, made, timeout=self._timeout)
            return True
        try:
            with self.store.lock(name, self._timeout) as locked:
                first = from_bytes(locked.checkpoint(locked.checkpoints()[0]).content).names
            if tuple(arms) in (first, self[name].names):
                open_bandit(self.store, name, made, timeout=self._timeout)
                return False
        except InvalidInputError as error:
            raise ConflictError(str(error)) from error
        raise ConflictError(
            f"arms: bandit {name!r} was created with {', '.join(first):.200}; add an arm with PUT …/arms/NAME, and "
            f"retire one with DELETE"
        )

    def serves(self, name: str) -> bool:
        """Return whether a bandit of the store is served; a fleet is not."""
        return not is_fleet(self.store, name)

    def policies(self) -> list[str]:
        """Return the names of the policies of the first bandits."""
        found = {str(json.loads(spec)["policy"]) for _, spec in self.store.page("", _SOME)}
        return sorted(found & registry().keys())


def require_printable(arms: Sequence[str]) -> None:
    """Refuse names of arms that a page or a log cannot show unchanged."""
    if odd := next((arm for arm in arms if not arm.isprintable()), None):
        raise InvalidInputError(f"arms: expected printable names, got {odd!r:.80}")


def _made(name: str, arms: Sequence[str], parameters: dict[str, Any]) -> LivePolicy:
    """Make a policy from a request over HTTP."""
    entry = registry().get(name)
    if entry is not None and (entry.capabilities.needs_system or entry.capabilities.simulates_only):
        raise InvalidInputError(f"policy: {name} needs the true system; use one that learns, such as autopilot")
    require_printable(arms)
    if "arms" in parameters:
        raise InvalidInputError("parameters: arms have their own field; omit them here")
    for key in ("feature_dim", "context_dim"):
        value = parameters.get(key, 0)
        if isinstance(value, int) and value > _MOST_INPUTS:
            raise InvalidInputError(f"{key}: expected at most {_MOST_INPUTS} over HTTP, got {value}")
    try:
        with states_of_at_most(_LARGEST):
            return make(name, arms=list(arms), **parameters)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"parameters: {name} cannot be made with them ({error!s:.200})") from error
