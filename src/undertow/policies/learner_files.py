"""What a save file keeps of a learner beside its state: the log, states to go back to, fits made and under way."""

import json
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.policies.background import amended, start
from undertow.policies.health import FitRecord
from undertow.policies.member import Task

if TYPE_CHECKING:
    from undertow.policies.learning import LearningPolicy

__all__ = ["learner_arrays", "restore_learner"]


def learner_arrays(policy: "LearningPolicy") -> dict[str, FloatArray]:
    """Return the arrays; a fit under way is kept as a task, to be started anew."""
    records = json.dumps(list(policy._records)).encode()
    arrays = {
        "log_begin": np.array([float(policy._log.begin)]),
        "log_room": np.array([float(policy._log.room)]),
        "log_rows": policy._log.rows(policy._log.begin, policy._log.end),
        "checkpoint_rounds": np.array([float(t) for t, _ in policy._checkpoints]),
        "checkpoint_states": np.array([state for _, state in policy._checkpoints]).reshape(-1, len(policy._state)),
        "fit_records": np.frombuffer(records, dtype=np.uint8).astype(np.float64),
    }
    for number, (task, _) in policy._under_way.items():
        arrays[f"task_{number}"] = np.array([task.round, task.begin, *task.seed], dtype=np.float64)
        arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"] = amended(policy, task).rows, task.block
    return arrays


def restore_learner(policy: "LearningPolicy", arrays: dict[str, FloatArray]) -> None:
    """Take back what `learner_arrays` returned."""
    begin, room, rows = int(arrays["log_begin"][0]), int(arrays["log_room"][0]), arrays["log_rows"]
    rounds, states = arrays["checkpoint_rounds"], arrays["checkpoint_states"]
    size = len(policy._state)
    widths = rows.ndim == 2 and rows.shape[1] == policy._log.reward + 1
    if not widths or begin < 0 or not policy._seen - 1 <= begin + len(rows) <= policy.round + 1:
        raise InvalidInputError(f"log: {rows.shape} from round {begin} on does not fit round {policy.round}")
    if states.shape != (len(rounds), size):
        raise InvalidInputError(f"checkpoints: expected {size} numbers each, got shape {states.shape}")
    if not len(rows) <= room <= max(2 * policy._log.keep, policy._log.room):
        raise InvalidInputError(f"log_room: {room} rows do not fit {len(rows)} that are kept")
    policy._log.restore(begin, rows, room)
    policy._checkpoints = deque((int(t), state.copy()) for t, state in zip(rounds, states, strict=True))
    records = json.loads(arrays["fit_records"].astype(np.uint8).tobytes().decode())
    policy._records.extend(FitRecord(*record) for record in records)
    for number, member in enumerate(policy._members):
        if f"task_{number}" in arrays:
            t, begin, *seed = (int(value) for value in arrays[f"task_{number}"])
            rows, block = arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"]
            if block.shape != (member.size,):
                raise InvalidInputError(f"task_{number}_block: expected {member.size} numbers, got {block.shape}")
            start(policy, number, Task(t, begin, rows, block, tuple(seed)))
