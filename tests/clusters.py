"""The same table on one process and on a cluster: `python tests/clusters.py dask|ray|spark` says whether both agree."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import undertow
from undertow.fleet import bucket_of, play

BUCKETS = 8
ARMS = ["low", "mid", "high"]


def template() -> Any:
    """The policy of every key."""
    return undertow.LinUCB(arms=ARMS, feature_dim=2, rng=0)


def table(seed: int, keys: int = 50, rounds: int = 6) -> dict[str, Any]:
    """Rows in random order, with what each arm earns."""
    rng, n = np.random.default_rng(seed), keys * rounds
    columns: dict[str, Any] = {"key": np.array([f"shop {i}" for i in rng.permutation(n) % keys])}
    columns |= {f"feature_{i}": rng.standard_normal(n) for i in range(2)}
    return columns | {f"reward_{arm}": rng.standard_normal(n) for arm in ARMS}


def by_key(decisions: Any) -> dict[Any, list[int]]:
    """The arms of each key in the order of its rounds."""
    order = np.lexsort((np.asarray(decisions["round"]), np.asarray(decisions["key"])))
    found: dict[Any, list[int]] = {}
    for key, arm in zip(np.asarray(decisions["key"])[order], np.asarray(decisions["arm"])[order], strict=True):
        found.setdefault(str(key), []).append(int(arm))
    return found


def played(frame: Any, mark: str = "") -> Any:
    """The decisions of whole buckets; a worker that finds no file `mark` makes it and is killed."""
    import pandas as pd

    if mark and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pd.DataFrame(play(template(), None, frame, buckets=BUCKETS)[1])


def on_dask(frame: Any, mark: str = "") -> Any:
    """Shuffle by bucket, and play each partition."""
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    meta = {"key": object, "round": "int64", "arm": "int64", "propensity": "float64"}
    with (
        dask.config.set({"dataframe.shuffle.method": "tasks", "dataframe.convert-string": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster),
    ):
        parts = dd.from_pandas(frame, npartitions=3, sort=False).shuffle("bucket", npartitions=4)
        return parts.drop(columns="bucket").map_partitions(played, mark, meta=meta).compute()


def on_ray(frame: Any) -> Any:
    """Play each bucket in a task of its own."""
    import pandas as pd
    import ray

    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        task = ray.remote(played)
        return pd.concat(ray.get([task.remote(rows) for _, rows in frame.groupby("bucket")]))
    finally:
        ray.shutdown()


def on_spark(frame: Any) -> Any:
    """Group by bucket, and play each group."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        schema = "key string, round long, arm long, propensity double"
        grouped = spark.createDataFrame(frame).groupBy("bucket")
        return grouped.applyInPandas(lambda rows: played(rows), schema).toPandas()  # a second argument would be the key
    finally:
        spark.stop()


def main() -> None:
    """Compare an engine with one process."""
    import pandas as pd

    engine, *mark = sys.argv[1:]
    events = table(6)
    _, decisions = play(template(), None, events, buckets=BUCKETS)
    frame = pd.DataFrame(events).assign(bucket=bucket_of(events["key"], BUCKETS))
    found = {"dask": on_dask, "ray": on_ray, "spark": on_spark}[engine](frame, *mark)
    print("same" if by_key(found) == by_key(decisions) else "different")


if __name__ == "__main__":
    main()
