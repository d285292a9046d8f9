#!/usr/bin/env python3
"""frosh beside scikit-learn's IncrementalPCA + sign and FAISS's ITQTransform: training time, memory and MAP.

    python python/benchmarks/side_by_side.py [--bits 64]

MNIST, CIFAR-10 GIST and sentence embeddings, from ../shared/data; sets that are not there are skipped aloud. Each method
runs in a process of its own on all threads. Memory is the growth of the largest resident size by training
(Linux). MAP is over
the ranking by Hamming distance, with the nearest 2 % of rows as the relevant ones, for 500 held-out queries: the same
code measures all methods. frosh's default ranking (with the byte of factors, if the model chose it) is printed too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
METHODS = ["frosh", "IncrementalPCA + sign", "FAISS ITQTransform"]
QUERIES = 500


def load(name: str) -> np.ndarray | None:
    """All rows of a set as float32."""
    path = DATA / {"mnist": "mnist/train-images-idx3-ubyte.gz", "gist": "cifar10-gist512/base.npy", "sentences": "debian-minilm384/base.npy"}[name]
    if not path.exists():
        return None
    if path.suffix == ".gz":
        pixels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16)
        return pixels.reshape(-1, 784).astype(np.float32)
    return np.load(path).astype(np.float32)


def memory(of: str) -> float:
    """Resident memory now (VmRSS) or at most since `reset_peak` (VmHWM), in megabytes. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(of)) * 1024 / 1e6


def reset_peak() -> float:
    """Forgets the largest resident size so far, and returns the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def one(name: str, method: str, bits: int) -> dict:
    """Trains and measures one method, in this process."""
    import frosh

    X = load(name)
    order = np.random.default_rng(0).permutation(len(X))
    queries, base = X[order[:QUERIES]], np.ascontiguousarray(X[order[QUERIES:]])
    del X
    result = {}
    before, start = reset_peak(), time.perf_counter()
    if method == "frosh":
        hasher = frosh.Hasher(bits).fit(base)
        seconds, grown = time.perf_counter() - start, memory("VmHWM") - before
        encode = hasher.transform
        measured = frosh.evaluate(hasher, base, queries)["rankings"]
        result["default"] = [hasher.ranking_, measured[hasher.ranking_]["map"], measured[hasher.ranking_]["bytes_per_row"]]
    elif method.startswith("Incremental"):
        from sklearn.decomposition import IncrementalPCA

        before, start = reset_peak(), time.perf_counter()
        pca = IncrementalPCA(bits, batch_size=4096).fit(base)
        seconds, grown = time.perf_counter() - start, memory("VmHWM") - before
        encode = lambda rows: frosh.pack(pca.transform(rows) > 0)  # noqa: E731
    else:
        import faiss

        before, start = reset_peak(), time.perf_counter()
        itq = faiss.ITQTransform(base.shape[1], bits, True)
        itq.train(base)
        seconds, grown = time.perf_counter() - start, memory("VmHWM") - before
        encode = lambda rows: frosh.pack(itq.apply(rows) > 0)  # noqa: E731
    result["map"] = mean_average_precision(encode(queries), encode(base), bits, relevant(base, queries))
    return {**result, "seconds": seconds, "memory": grown}


def relevant(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    import frosh

    return frosh.exact_neighbours(base, queries, k=len(base) // 50)[0]


def mean_average_precision(queries: np.ndarray, base: np.ndarray, bits: int, neighbours: np.ndarray) -> float:
    """MAP of the ranking by Hamming distance; rows at the same distance share their expected precision."""
    total = 0.0
    for query in range(len(queries)):
        distances = np.bitwise_count(base ^ queries[query]).sum(axis=1, dtype=np.int64)
        is_relevant = np.zeros(len(base), bool)
        is_relevant[neighbours[query]] = True
        items = np.bincount(distances, minlength=bits + 1)
        hits = np.bincount(distances[is_relevant], minlength=bits + 1)
        seen, found, sum_ = 0, 0, 0.0
        for n, r in zip(items.tolist(), hits.tolist()):
            if r:
                # Expectation over the order of the n rows of one distance, r of them relevant.
                j = np.arange(1, n + 1)
                expected = (found + 1 + (j - 1) * ((r - 1) / (n - 1) if n > 1 else 0)) / (seen + j)
                sum_ += r / n * expected.sum()
            seen, found = seen + n, found + r
        total += sum_ / found
    return total / len(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.bits)))
        return
    print(f"{options.bits} bits\n\n| set | method | training | memory | MAP, Hamming |\n|---|---|---|---|---|")
    for name in ("mnist", "gist", "sentences"):
        if load(name) is None:
            print(f"SKIPPED {name}: there is no such file in {DATA}", file=sys.stderr)
            continue
        for method in METHODS:
            command = [sys.executable, __file__, "--bits", str(options.bits), "--one", name, method]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"SKIPPED {method} on {name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            got = json.loads(done.stdout)
            note = ""
            if "default" in got:
                ranking, value, size = got["default"]
                note = f" ({ranking} ranking, {size} bytes: {value:.3f})"
            print(f"| {name} | {method} | {got['seconds']:.2f} s | {got['memory']:.0f} MB | {got['map']:.3f}{note} |", flush=True)


if __name__ == "__main__":
    main()
