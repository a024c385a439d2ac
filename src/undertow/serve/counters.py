"""Counters of a worker, in Prometheus' text format."""

import os
import threading
from bisect import bisect_left
from collections import Counter

__all__ = ["Counters"]

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Counters:
    """The number of requests, and their durations."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()
        self._guard = threading.Lock()

    def note(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._guard:
            self._requests[method, path, status] += 1
            self._buckets[method, path, bisect_left(_BOUNDS, seconds)] += 1
            self._seconds[method, path] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """Return the counters of this worker."""
        worker = f'worker="{os.getpid()}"'
        with self._guard:
            requests, buckets, seconds = self._requests.copy(), self._buckets.copy(), self._seconds.copy()
        lines = [
            "# HELP undertow_http_requests_total Requests that a worker answered.",
            "# TYPE undertow_http_requests_total counter",
        ]
        for (method, path, status), count in sorted(requests.items()):
            labels = f'{worker},method="{method}",path="{path}",status="{status}"'
            lines.append(f"undertow_http_requests_total{{{labels}}} {count}")
        name = "undertow_http_request_seconds"
        lines += [f"# HELP {name} Time that a worker took to answer.", f"# TYPE {name} histogram"]
        for (method, path), total in sorted(seconds.items()):
            labels, count = f'{worker},method="{method}",path="{path}"', 0
            for number, bound in enumerate((*_BOUNDS, None)):
                count += buckets[method, path, number]
                lines.append(f'{name}_bucket{{{labels},le="{"+Inf" if bound is None else bound}"}} {count}')
            lines += [f"{name}_sum{{{labels}}} {total:.6f}", f"{name}_count{{{labels}}} {count}"]
        return "\n".join(lines) + "\n"
