#!/usr/bin/env python3
"""Compare the speed of Hamming search and of encoding in frosh and in FAISS, cell by cell.

Both search the same clustered codes with the same queries, k and threads: 64, 128 and 256
bits, 1 and 10 million codes, single queries and batches. Both are exact; the sums of the
distances they find must agree. FAISS searches by IndexBinaryFlat. Encoding, 960 dimensions,
is compared with IndexLSH.sa_encode and with NumPy's packbits((x - mean) @ w > 0). Times are
the best of a few.

    python3 scripts/compare_search.py                # about four minutes
    python3 scripts/compare_search.py --millions 1   # a part of it
    python3 scripts/compare_search.py --bits 64
    python3 scripts/compare_search.py --only-encode

The pinned packages go into `.venv` at the root of the repository (Python 3.11 or later).
The exit code is 0 whether or not the goals are met; otherwise something failed to run, or
the answers differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from common import ROOT, run_inside_venv, say

if TYPE_CHECKING:
    import numpy as np

# FAISS's threads spin while they wait, which on a busy machine costs it far more than it gains.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

PINS = ["numpy==2.4.6", "faiss-cpu==1.15.1", "threadpoolctl==3.6.0"]

BITS, MILLIONS, KS, THREADS = [64, 128, 256], [1, 10], [10, 100], [1, 2]
QUERIES, CHECKED = 1000, 100
SINGLE_GOAL, BATCH_GOAL = 1.5, 3.0
BENCH = ["cargo", "bench", "--quiet", "-p", "frosh", "--bench", "search_speed", "--"]


def make_codes(bits: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of random codes, a hundred of each, every bit flipped with probability 1/16."""
    import numpy as np

    rng = np.random.default_rng(bits + count)
    words = bits // 64

    def random(rows: int) -> np.ndarray:
        return rng.integers(0, 2**64, size=(rows, words), dtype=np.uint64)

    centres = random(count // 100)

    def rows(count: int) -> np.ndarray:
        flips = random(count)
        for _ in range(3):
            flips &= random(count)
        return (centres[rng.integers(len(centres), size=count)] ^ flips).view(np.uint8)

    return rows(count), rows(QUERIES)


def best(budget: float, most: int, work: Callable[[int], Any]) -> float:
    """The shortest of up to `most` timings, in seconds; no new one after `budget` seconds."""
    times: list[float] = []
    while len(times) < most and sum(times) < budget:
        start = time.perf_counter()
        work(len(times))
        times.append(time.perf_counter() - start)
    return min(times)


def time_faiss(codes: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """The cells of the benchmark, by FAISS."""
    import faiss

    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    # A batch costs FAISS the same for each query (it takes 32 at a time): fewer will do.
    asked = queries[: 5 * CHECKED if len(codes) <= 1_000_000 else CHECKED]
    found: dict[int, np.ndarray] = {}

    def search_batch(k: int) -> None:
        found[k] = index.search(asked, k)[0]

    cells = []
    for k in KS:
        for threads in THREADS:
            faiss.omp_set_num_threads(threads)
            single = best(0.2, 40, lambda q: index.search(queries[q : q + 1], k))
            batch = best(0.6, 2, lambda _: search_batch(k))
            cells.append({"k": k, "threads": threads, "single_per_second": 1 / single,
                          "batch_per_second": len(asked) / batch,
                          "sum_of_distances": int(found[k][:CHECKED].sum())})
    return cells


def time_frosh(folder: Path, codes: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """The same cells, by the benchmark."""
    import numpy as np

    np.save(folder / "codes.npy", codes)
    np.save(folder / "queries.npy", queries)
    options = [x for threads in THREADS for x in ("--threads", str(threads))]
    text = subprocess.check_output(
        [*BENCH, "--codes", str(folder / "codes.npy"), "--queries", str(folder / "queries.npy"),
         "--json", *options], cwd=ROOT, text=True)
    return [json.loads(line) for line in text.splitlines()]


def compare_encoding() -> None:
    """Rows per second that each tool encodes, and how many times faster frosh is."""
    import faiss
    import numpy as np
    from threadpoolctl import threadpool_limits

    bench = [*BENCH[:-2], "speed", "--", "--only-encode", "--json"]

    def ours() -> list[dict[str, Any]]:
        text = subprocess.check_output(bench, cwd=ROOT, text=True)
        return [json.loads(line) for line in text.splitlines()]

    say("encoding")
    # Before and after the others, so that a busy moment harms nobody alone.
    before = ours()
    rng = np.random.default_rng(0)
    rows, dim = before[0]["rows"], before[0]["dim"]
    x = rng.standard_normal((rows, dim), dtype=np.float32)
    mean = x.mean(axis=0)
    theirs = []
    for cell in before:
        bits, threads = cell["bits"], cell["threads"]
        faiss.omp_set_num_threads(threads)
        index = faiss.IndexLSH(dim, bits, True, False)
        w = rng.standard_normal((dim, bits), dtype=np.float32)
        by_faiss = best(3, 5, lambda _: index.sa_encode(x))
        with threadpool_limits(limits=threads):
            by_numpy = best(3, 5, lambda _: np.packbits((x - mean) @ w > 0, axis=1, bitorder="little"))
        theirs.append((rows / by_faiss, rows / by_numpy))
    print(f"\nrows encoded per second, {dim} dimensions")
    print(f"{'bits':>5}{'threads':>9}{'frosh':>12}{'IndexLSH':>12}{'ratio':>8}{'NumPy':>12}{'ratio':>8}")
    for cell, again, (by_faiss, by_numpy) in zip(before, ours(), theirs, strict=True):
        rate = max(cell["rows_per_second"], again["rows_per_second"])
        print(f"{cell['bits']:>5}{cell['threads']:>9}{rate:>12.0f}{by_faiss:>12.0f}{rate / by_faiss:>8.2f}"
              f"{by_numpy:>12.0f}{rate / by_numpy:>8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, action="append", choices=BITS)
    parser.add_argument("--millions", type=int, action="append")
    parser.add_argument("--only-encode", action="store_true")
    args = parser.parse_args()
    run_inside_venv(PINS)
    if args.only_encode:
        return compare_encoding()

    print(f"queries per second; {', '.join(PINS)}\n")
    print(f"{'':>25}{'single queries':>28}{'batches':>42}")
    print(f"{'bits':>5}{'codes':>7}{'k':>5}{'threads':>8}"
          f"{'frosh':>10}{'FAISS':>10}{'ratio':>8}{'bandwidth':>12}{'frosh':>12}{'FAISS':>10}{'ratio':>8}")
    missed = 0
    for bits in args.bits or BITS:
        for millions in args.millions or MILLIONS:
            say(f"{bits} bits, {millions} million codes")
            codes, queries = make_codes(bits, millions * 1_000_000)
            with tempfile.TemporaryDirectory(prefix="frosh-compare-") as folder:
                ours = time_frosh(Path(folder), codes, queries)
            for frosh, faiss in zip(ours, time_faiss(codes, queries), strict=True):
                if any(frosh[key] != faiss[key] for key in ("k", "threads", "sum_of_distances")):
                    sys.exit(f"the answers differ: {frosh} and {faiss}")
                single = frosh["single_per_second"] / faiss["single_per_second"]
                batch = frosh["batch_per_second"] / faiss["batch_per_second"]
                missed += (single < SINGLE_GOAL) + (batch < BATCH_GOAL)
                print(f"{bits:>5}{millions:>6}M{frosh['k']:>5}{frosh['threads']:>8}"
                      f"{frosh['single_per_second']:>10.0f}{faiss['single_per_second']:>10.0f}"
                      f"{single:>8.1f}{frosh['bandwidth_share']:>11.0%} "
                      f"{frosh['batch_per_second']:>12.0f}{faiss['batch_per_second']:>10.0f}"
                      f"{batch:>8.1f}", flush=True)
    print("\nbandwidth: of a single query, as a share of a plain sum's over the same codes")
    print(f"goals: single at least {SINGLE_GOAL} times FAISS, batch at least {BATCH_GOAL:.0f} times: "
          + (f"missed {missed} times" if missed else "met in every cell"))
    if not args.bits and not args.millions:
        compare_encoding()


if __name__ == "__main__":
    main()
