"""Nothing crashes the interpreter: odd shapes, types, values and threads give results or Python's own exceptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import frosh

ERRORS = (ValueError, TypeError, OverflowError)


@pytest.fixture(scope="module")
def hasher(rows):
    return frosh.Hasher(8).fit(rows)


@pytest.fixture(scope="module")
def quantizer(rows):
    return frosh.Quantizer(4, sample_rows=1024).fit(rows)


ODD = [
    None,
    3,
    3.5,
    "text",
    b"bytes",
    {},
    set(),
    [],
    [[]],
    [[], []],
    [1, 2, 3],
    [[1.0, 2.0], [3.0]],
    [["a", "b"]],
    [[None, 1.0]],
    [[[1.0]]],
    object(),
    np.float32(3),
    np.array(3.0),
    np.zeros(48),
    np.zeros((2, 3, 48)),
    np.zeros((0, 48)),
    np.zeros((48, 0)),
    np.zeros((0, 0)),
    np.zeros((5, 47)),
    np.full((3, 48), np.nan),
    np.full((3, 48), np.inf),
    np.full((3, 48), 1e300),
    np.full((3, 48), -1e-320),
    np.zeros((3, 48), np.complex64),
    np.zeros((3, 48), "U4"),
    np.zeros((3, 48), "S4"),
    np.zeros((3, 48), "M8[s]"),
    np.zeros((3, 48), "m8[s]"),
    np.zeros((3, 48), "V4"),
    np.zeros(3, dtype=[("a", "f4"), ("b", "f4")]),
    np.array([[object()] * 48]),
    np.array([[2**200] * 48], dtype=object),
    np.ma.masked_array(np.zeros((2, 48)), mask=True),
    np.broadcast_to(np.float32(1), (4, 48)),
    np.broadcast_to(np.float32(1), (2**40, 0)),
    np.lib.stride_tricks.as_strided(np.zeros(48, np.float32), (3, 48), (0, 4)),
    memoryview(b"abc"),
    iter([]),
    iter([None]),
    iter([np.zeros((2, 48)), np.zeros((2, 3))]),
    range(5),
    lambda: None,
    np,
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__ + str(getattr(value, "shape", "")))
def test_odd_inputs_give_results_or_pythons_exceptions(value, hasher, quantizer):
    import copy

    calls = [
        lambda x: frosh.Sketch(sketch_rows=16).update(x),
        lambda x: frosh.Hasher(8).fit(x),
        lambda x: hasher.transform(x),
        lambda x: hasher.encode(x),
        lambda x: frosh.exact_neighbours(np.zeros((4, 48), np.float32), x),
        lambda x: frosh.evaluate(hasher, x),
        lambda x: frosh.Sketch.from_bytes(x),
        lambda x: frosh.Hasher(x).fit(np.zeros((9, 8))),
        lambda x: quantizer.transform(x),
        lambda x: quantizer.encode(x),
        lambda x: frosh.Quantizer(x).fit(np.zeros((9, 8))),
        lambda x: frosh.Quantizer(effort=x).fit(np.zeros((9, 8))),
        lambda x: frosh.load(x),
        lambda x: frosh.read(x),
        lambda x: frosh.unpack(x, 3),
    ]
    for call in calls:
        try:
            given = copy.deepcopy(value)
        except TypeError:
            given = value
        try:
            call(given)
        except (*ERRORS, OSError, frosh.NotFittedError):
            pass


def test_random_shapes_types_and_strides(hasher):
    rng = np.random.default_rng(0)
    types = ["f2", "f4", "f8", ">f4", ">f8", "u1", "i1", "i2", ">u2", "i4", "u8", "?", "O", "c8", "g"]
    for trial in range(400):
        shape = tuple(rng.integers(0, 6, size=rng.integers(0, 4)))
        if rng.random() < 0.7:
            shape = (int(rng.integers(0, 40)), 48)
        X = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3), dtype="f8")
        if X.ndim and rng.random() < 0.2 and X.size:
            X.flat[rng.integers(X.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e40])
        with np.errstate(all="ignore"):
            X = np.asarray(X.astype(types[rng.integers(len(types))]))
        if X.ndim == 2 and rng.random() < 0.5:
            X = [X[::2], X[::-1], np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2], X[1:, :]][rng.integers(5)]
        if rng.random() < 0.5:
            X.flags.writeable = False
        good = X.ndim == 2 and X.shape[1] == 48 and X.shape[0] > 0 and X.dtype.kind != "c"
        if good:
            with np.errstate(all="ignore"):
                values = X.astype(np.float64)
            good = bool(np.isfinite(values).all() and (np.abs(values) <= 2.0**50).all())
        try:
            codes = hasher.transform(X)
            assert good and codes.shape == (len(X), 1)
            assert (codes == hasher.transform(np.ascontiguousarray(X.astype(np.float64)))).all() or X.dtype.kind == "g"
        except ERRORS:
            assert not good, (X.shape, X.dtype)


def test_hostile_bytes_are_refused(rows):
    for data in [
        frosh.Sketch(sketch_rows=8, sample_rows=20).update(rows[:500]).to_bytes(),
        frosh.Hasher(8).fit(rows[:500]).to_bytes(),
        frosh.Quantizer(4, sample_rows=1024).fit(rows[:1100, :8]).to_bytes(),
    ]:
        rng = np.random.default_rng(1)
        for _ in range(150):
            broken = bytearray(data)
            for _ in range(rng.integers(1, 4)):
                broken[rng.integers(min(len(broken), 4000))] = rng.integers(256)
            for read in [frosh.Sketch.from_bytes, frosh.Hasher.from_bytes, frosh.Quantizer.from_bytes, frosh.Codes.from_bytes]:
                try:
                    read(bytes(broken))
                except ValueError:
                    pass


def test_arrays_that_another_thread_changes(rows, hasher, quantizer):
    """Values may become NaN between two reads. The results are wrong then; nothing crashes or hangs."""
    X = np.tile(rows, (20, 1))
    stop = threading.Event()

    def change():
        rng = np.random.default_rng(0)
        while not stop.is_set():
            at = rng.integers(len(X), size=200)
            X[at, rng.integers(48, size=200)] = rng.choice([np.nan, np.inf, 1e30, 0.0, 5.0])
            X[at] = 0.5

    thread = threading.Thread(target=change)
    thread.start()
    deadline = time.monotonic() + 10
    outcomes = {"fine": 0, "refused": 0}
    try:
        while time.monotonic() < deadline:
            for use in [
                lambda: frosh.Sketch(sketch_rows=32).update(X),
                lambda: frosh.Hasher(16, method="osh").fit(X[:5000]),
                lambda: hasher.transform(X),
                lambda: quantizer.transform(X[:20000]),
                lambda: frosh.exact_neighbours(X[:5000], X[:10], k=5),
            ]:
                try:
                    use()
                    outcomes["fine"] += 1
                except ValueError:
                    outcomes["refused"] += 1
    finally:
        stop.set()
        thread.join()
    assert sum(outcomes.values()) > 4
    assert frosh.Hasher(8).fit(rows).to_bytes() == hasher.to_bytes()


def test_threads_share_objects(rows, hasher):
    """The lock of the interpreter is released, and objects can be used by several threads."""
    sketch = frosh.Sketch(sketch_rows=32)
    codes = hasher.encode(rows)
    want = codes.search(rows[:50], k=5)[0]
    failures = []

    def work(number):
        try:
            for _ in range(5):
                sketch.update(rows[number::4])
                sketch.rows, sketch.to_bytes()
                assert (codes.search(rows[:50], k=5)[0] == want).all()
        except BaseException as error:  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures and sketch.rows == 5 * 6000


def test_other_threads_run_while_computing(rows):
    X = np.tile(rows, (100, 1))
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    frosh.Sketch(sketch_rows=64, method="osh", n_jobs=1).update(X)
    stop.set()
    thread.join()
    assert len(ticks) > 5 and np.diff(ticks).max() < 0.5


CTRL_C = """
    import signal, sys, threading, time, os
    import numpy as np, frosh
    X = np.random.default_rng(0).standard_normal((60000, 256), dtype=np.float32)
    def endless():
        while True:
            yield X
    hasher = frosh.Hasher(32).fit(X[:5000])
    if sys.argv[1] == "fit":
        wide = np.random.default_rng(0).standard_normal((3000, 2000), dtype=np.float32)
        sketch = frosh.Sketch(sketch_rows=2000).update(wide)
    narrow = np.ascontiguousarray(X[:, :64])
    def endless_narrow():
        while True:
            yield narrow
    slow = frosh.Quantizer(64, effort=32, sample_rows=1024)
    if sys.argv[1] in ("encode-quantizer", "add-quantizer"):
        slow.fit(narrow[:2000])
    work = {
        "learn": lambda: frosh.Sketch(sketch_rows=256, method="osh").update(endless()),
        "fit": lambda: [sketch.hasher(1000, rotation="itq") for _ in range(100)],
        "encode": lambda: hasher.transform(endless()),
        "fit-quantizer": lambda: [frosh.Sketch().update(X[:20000]).quantizer(32) for _ in range(100)],
        "encode-quantizer": lambda: slow.transform(endless_narrow()),
        "add-quantizer": lambda: frosh.Index(slow).add(endless_narrow()),
        "exact": lambda: frosh.exact_neighbours(endless(), X[:2000], k=10),
    }[sys.argv[1]]
    sent = []
    def interrupt():
        time.sleep(1.0)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        work()
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
        print(f"{took:.3f}", flush=True)
        os._exit(0 if took < 1.0 else 1)
    os._exit(2)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("what", ["learn", "fit", "encode", "exact", "fit-quantizer", "encode-quantizer", "add-quantizer"])
def test_ctrl_c_works_within_a_second(what):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CTRL_C), what], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
