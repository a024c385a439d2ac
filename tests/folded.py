"""Policies that are played through everything, and what their events lead to in another process.

python tests/folded.py FILE    folds every checkpoint of a file with its events, and prints digests as JSON
"""

import hashlib
import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import undertow
from helpers import full_system, make_policy
from undertow.contracts.serving import play_everything
from undertow.contracts.trial import Trial, content_of
from undertow.live.events import Event, decode, encode
from undertow.policies import LivePolicy, registry

SYSTEM = full_system(3, 2, 3, seed=1)
FORMS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "all": {
        "explore": 0.3,
        "minimize": True,
        "standardize": True,
        "context_first": True,
        "default_reward": 0.5,
        "max_wait": 6,
        "max_pending": 9,
    },
}


def digest(policy: LivePolicy) -> str:
    """Return a digest of all that a save file would hold."""
    total = hashlib.blake2b(digest_size=8)
    for name, value in sorted(content_of(policy).items()):
        total.update(name.encode() + (value if isinstance(value, bytes) else json.dumps(value).encode()))
    return total.hexdigest()


def played(name: str, form: str, rounds: int = 70) -> tuple[LivePolicy, bytes, list[Event]]:
    """Play a policy through everything; return it, a checkpoint from the middle and the events since."""
    known = registry()[name].parameters
    given = {key: value for key, value in FORMS[form].items() if key in known}

    def factory(system: undertow.LinearGaussianSystem, rng: int) -> LivePolicy:
        return make_policy(name, system, rng=rng, **given)

    trial, log = Trial(factory, SYSTEM), list[Event]()
    policy: LivePolicy = trial.make(1)
    play_everything(trial, policy, 0, rounds // 3)
    checkpoint = policy.to_bytes()
    policy.events(log.append)
    play_everything(trial, policy, rounds // 3, rounds)
    return policy, checkpoint, log


def write(file: Path, runs: dict[str, tuple[bytes, list[Event]]]) -> None:
    """Write checkpoints and events, for another process."""
    listed = {
        name: [b64encode(checkpoint).decode(), [encode(event).decode() for event in events]]
        for name, (checkpoint, events) in runs.items()
    }
    file.write_text(json.dumps(listed))


def main() -> None:
    """Fold what a file holds."""
    listed = json.loads(Path(sys.argv[1]).read_text())
    print(
        json.dumps(
            {
                name: digest(undertow.fold(b64decode(checkpoint), map(decode, events)))
                for name, (checkpoint, events) in listed.items()
            }
        )
    )


if __name__ == "__main__":
    main()
