"""Spark, Dask and Ray: several worker processes, one of them killed, the same bytes as the program.

    FROSH_ENGINES=1 pytest tests/test_engines.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import frosh
from conftest import need, skip_aloud

#: Worker processes import this module, for the functions below.
HERE = str(Path(__file__).resolve().parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))

PARTS = 5
SETTINGS = {"sketch_rows": 32, "seed": 11}

pytestmark = pytest.mark.engines


@pytest.fixture(autouse=True)
def _flag():
    if not os.environ.get("FROSH_ENGINES"):
        skip_aloud("set FROSH_ENGINES=1 to test with Spark, Dask and Ray")


@pytest.fixture(scope="module")
def shards(rows):
    return np.array_split(rows, PARTS)


@pytest.fixture
def flat(shards, run, tmp_path) -> bytes:
    """The bytes of `frosh sketch` on each shard and one `frosh merge`."""
    parts = _sketches(shards, run, tmp_path)
    run("merge", *parts, "-o", tmp_path / "all.sketch")
    return (tmp_path / "all.sketch").read_bytes()


@pytest.fixture
def tree(shards, run, tmp_path) -> bytes:
    """The bytes of a tree of merges, two at a time."""
    level = _sketches(shards, run, tmp_path)
    height = 0
    while len(level) > 1:
        height += 1
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = []
        for i, pair in enumerate(pairs):
            merged = tmp_path / f"{height}-{i}.merged"
            run("merge", *pair, "-o", merged)
            level.append(merged)
    return level[0].read_bytes()


def _sketches(shards, run, folder):
    paths = []
    for worker, shard in enumerate(shards):
        np.save(folder / f"{worker}.npy", shard)
        paths.append(folder / f"{worker}.sketch")
        options = ["--sketch-rows", SETTINGS["sketch_rows"], "--seed", SETTINGS["seed"]]
        run("sketch", folder / f"{worker}.npy", "--worker", worker, *options, "-o", paths[-1])
    return paths


def die_once(marker: str, pid: int) -> None:
    """Kills a process, the first time only."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(pid, signal.SIGKILL)
    time.sleep(30)


# Spark


@pytest.fixture(scope="module")
def spark():
    sql = need("pyspark.sql")
    if subprocess.run(["java", "-version"], capture_output=True, check=False).returncode:
        skip_aloud("Java is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.task.maxFailures", "4")
        .config("spark.executor.memory", "1g")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(spark, shards):
    """A data frame whose partition i has the rows of shard i, in their order."""
    pairs = [[(i * 10**6 + j, row.tolist()) for j, row in enumerate(shard)] for i, shard in enumerate(shards)]
    rdd = spark.sparkContext.parallelize(pairs, PARTS).flatMap(lambda part: part)
    frame = spark.createDataFrame(rdd, "id long, v array<float>")
    assert frame.rdd.getNumPartitions() == PARTS
    return frame.persist()


def test_spark_sketch_has_the_programs_bytes(frame, flat, tree):
    import frosh.spark

    assert frosh.spark.sketch(frame, "v", **SETTINGS).to_bytes() == flat
    assert frosh.spark.sketch(frame, "v", fan_in=2, **SETTINGS).to_bytes() == tree
    with pytest.raises(ValueError, match="no column"):
        frosh.spark.sketch(frame, "w")
    with pytest.raises(TypeError, match="unexpected argument"):
        frosh.spark.sketch(frame, "v", bits=3)


def test_spark_runs_the_task_of_a_killed_executor_again(frame, flat, tmp_path):
    import frosh.spark

    marker = str(tmp_path / "killed")

    def kill_the_executor(batches):
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            if TaskContext.get().partitionId() == 2 and number == 0:
                daemon = os.getppid()
                with open(f"/proc/{daemon}/stat") as stat:
                    executor = int(stat.read().rpartition(")")[2].split()[1])
                die_once(marker, executor)
            yield batch

    dying = frame.mapInArrow(kill_the_executor, frame.schema)
    assert frosh.spark.sketch(dying, "v", **SETTINGS).to_bytes() == flat
    assert os.path.exists(marker)


def test_spark_encodes_and_sql_works(frame, spark, shards, rows, flat):
    import frosh.spark

    hasher = frosh.Sketch.from_bytes(flat).hasher(16)
    want = {i * 10**6 + j: code.tobytes() for i, shard in enumerate(shards) for j, code in enumerate(hasher.transform(shard))}
    coded = frosh.spark.encode(frame, hasher, "v")
    assert {row.id: bytes(row.code) for row in coded.select("id", "code").collect()} == want
    quantizer = frosh.Sketch.from_bytes(flat).quantizer(4)
    quantized = frosh.spark.encode(frame, quantizer, "v", output="q").select("id", "q").collect()
    assert {row.id: bytes(row.q) for row in quantized} == {
        i * 10**6 + j: code.tobytes() for i, shard in enumerate(shards) for j, code in enumerate(quantizer.transform(shard))
    }
    frosh.spark.register(spark, hasher, **SETTINGS)
    frame.createOrReplaceTempView("vectors")
    rows_ = spark.sql("SELECT id, frosh_encode(v) AS code FROM vectors").collect()
    assert {row.id: bytes(row.code) for row in rows_} == want
    merged = spark.sql(
        "SELECT frosh_merge(s) AS s FROM (SELECT frosh_sketch(v, part) AS s FROM "
        "(SELECT v, id div 1000000 AS part FROM vectors) GROUP BY part)"
    )
    got = frosh.Sketch.from_bytes(bytes(merged.collect()[0].s))
    # The order of rows in a group is Spark's, so the bytes may differ; the rows are the same ones.
    assert got.rows == len(rows) and got.workers == tuple(range(PARTS))
    np.testing.assert_allclose(got.mean, rows.mean(0, dtype=np.float64), atol=1e-4)
    merged.createOrReplaceTempView("merged")
    model = spark.sql("SELECT frosh_fit(s, 16) AS m FROM merged").collect()[0].m
    assert frosh.Hasher.from_bytes(bytes(model)).n_bits == 16
    model = spark.sql("SELECT frosh_fit_quantizer(s, 4) AS m FROM merged").collect()[0].m
    assert bytes(model) == got.quantizer(4).to_bytes()


# Dask


@pytest.fixture(scope="module")
def dask_client():
    distributed = need("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            yield client


def _slow(shard, marker):
    if marker is not None:
        die_once(marker, os.getpid())
    return shard


def test_dask(dask_client, shards, rows, flat, tree):
    import dask.array as da
    import frosh.dask

    sizes = tuple(len(shard) for shard in shards)
    x = da.from_array(rows, chunks=(sizes, (20, 28)))
    assert frosh.dask.sketch(x, **SETTINGS).to_bytes() == flat
    assert frosh.dask.sketch(x, fan_in=2, **SETTINGS).to_bytes() == tree
    hasher = frosh.Sketch.from_bytes(flat).hasher(16)
    codes = frosh.dask.encode(x, hasher)
    assert codes.chunks == (sizes, (2,)) and (codes.compute() == hasher.transform(rows)).all()
    quantizer = frosh.Sketch.from_bytes(flat).quantizer(4)
    codes = frosh.dask.encode(x, quantizer)
    assert codes.chunks == (sizes, (4,)) and (codes.compute() == quantizer.transform(rows)).all()


def test_dask_data_frames(dask_client, rows):
    dd = need("dask.dataframe")
    import pandas as pd

    import frosh.dask

    import dask

    frame = pd.DataFrame({"v": list(rows[:600])})
    with dask.config.set({"dataframe.convert-string": False}):  # else Dask makes text of the arrays
        partitions = dd.from_pandas(frame, npartitions=3)
    got = frosh.dask.sketch(partitions, column="v", **SETTINGS)
    assert got.rows == 600
    hasher = got.hasher(8)
    assert (frosh.dask.encode(partitions, hasher, column="v").compute() == hasher.transform(rows[:600])).all()


def test_dask_runs_the_task_of_a_killed_worker_again(dask_client, shards, flat, tmp_path):
    import dask
    import frosh.dask

    marker = str(tmp_path / "killed")
    batches = [dask.delayed(_slow)(shard, marker if i == 2 else None) for i, shard in enumerate(shards)]
    assert frosh.dask.sketch(batches, **SETTINGS).to_bytes() == flat
    assert os.path.exists(marker)


# Ray


@pytest.fixture(scope="module")
def ray_cluster():
    ray = need("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    yield ray
    ray.shutdown()


def test_ray(ray_cluster, shards, flat, tree):
    import frosh.ray

    references = [ray_cluster.put(shard) for shard in shards]
    assert frosh.ray.sketch(references, **SETTINGS).to_bytes() == flat
    assert frosh.ray.sketch(references, fan_in=2, **SETTINGS).to_bytes() == tree


def test_ray_data(ray_cluster, shards, rows, flat):
    import pyarrow as pa
    import ray.data

    import frosh.ray

    tables = [pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(shard.ravel()), 48)}) for shard in shards]
    data = ray.data.from_arrow(tables)
    assert frosh.ray.sketch(data, column="v", **SETTINGS).to_bytes() == flat
    hasher = frosh.Sketch.from_bytes(flat).hasher(16)
    coded = frosh.ray.encode(data, hasher, column="v").take_all()
    want = sorted(code.tobytes() for code in hasher.transform(rows))
    assert sorted(bytes(row["code"]) for row in coded) == want
    quantizer = frosh.Sketch.from_bytes(flat).quantizer(4)
    coded = frosh.ray.encode(data, quantizer, column="v").take_all()
    assert sorted(bytes(row["code"]) for row in coded) == sorted(code.tobytes() for code in quantizer.transform(rows))


def test_ray_runs_the_task_of_a_killed_worker_again(ray_cluster, shards, flat, tmp_path):
    import frosh.ray

    marker = str(tmp_path / "killed")
    slow = ray_cluster.remote(max_retries=3)(_slow)
    references = [slow.remote(shard, marker if i == 2 else None) for i, shard in enumerate(shards)]
    assert frosh.ray.sketch(references, **SETTINGS).to_bytes() == flat
    assert os.path.exists(marker)
