#!/usr/bin/env python3
"""Compare the speed of frosh's quantiser with FAISS's product quantisers: training, encoding and search.

A million made rows of 128 dimensions in 100 clusters, in 1,000, and without clusters; queries are made the same
way. Both tools search the same rows for the 10 nearest with codes of 8 and 16 bytes, one query at a time and in
batches of 1,000, on one thread and on two. FAISS searches by PQ with 4-bit codebooks (`PQ16x4fs`, its fast scan)
and with 8-bit ones (`PQ8`); frosh by `cargo bench -p frosh --bench quantizer`, which includes the tables of the
queries. recall@10 is against exact neighbours. Encoding is compared with `sa_encode` of PQ, OPQ and RQ. Times are
the best of three.

    python3 scripts/compare_quantizer.py               # about 35 minutes
    python3 scripts/compare_quantizer.py --only-encode --bytes 8
    python3 scripts/compare_quantizer.py --rows 200000 --bytes 8 --no-encode

The pinned packages go into `.venv` at the root of the repository (Python 3.11 or later). The exit code is 0 whether
or not the goals are met.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from common import ROOT, run_inside_venv, say

if TYPE_CHECKING:
    import numpy as np

# FAISS's threads spin while they wait, which on a busy machine costs it far more than it gains.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

PINS = ["numpy==2.4.6", "faiss-cpu==1.15.1"]
DIM, QUERIES, SINGLE, K, TURNS = 128, 1000, 200, 10, 3
BENCH = ["cargo", "bench", "--quiet", "-p", "frosh", "--bench", "quantizer", "--"]
# Rows of the training: what PQ and OPQ take by default. frosh's sketch has seen as many, and keeps what 32 MB hold.
TRAIN = 65_536
# RQ would take many minutes with all of them.
RQ_TRAIN = 16_384
ENCODED = 50_000


def make(rows: int, clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around centres, or around one if there are no clusters. Both have spectra that fall."""
    import numpy as np

    rng = np.random.default_rng(rows + clusters)
    fall = 1.0 / (1.0 + np.arange(DIM) / 16)
    centres = rng.standard_normal((max(clusters, 1), DIM)) * fall * (clusters > 0)
    spread = (0.25 if clusters else 1.0) / (1.0 + np.arange(DIM) / 32)

    def some(count: int) -> np.ndarray:
        noise = rng.standard_normal((count, DIM), dtype=np.float32) * spread.astype(np.float32)
        return (centres[rng.integers(0, len(centres), count)] + noise).astype(np.float32)

    return some(rows), some(QUERIES)


def best(work: Callable[[], Any], turns: int = TURNS) -> float:
    """Seconds of the fastest of a few runs."""
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def exact(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    import faiss

    index = faiss.IndexFlatL2(DIM)
    index.add(base)
    return index.search(queries, K)[1]


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    import numpy as np

    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found, truth)]))


def faiss_cells(name: str, base: np.ndarray, queries: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Queries per second and recall of a FAISS index."""
    import faiss

    index = faiss.index_factory(DIM, name)
    index.train(base[:TRAIN])
    index.add(base)
    cells = {"recall": recall(index.search(queries, K)[1], truth)}
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        cells[f"batch, {threads}"] = QUERIES / best(lambda: index.search(queries, K))
        one = lambda: [index.search(queries[q : q + 1], K) for q in range(SINGLE)]  # noqa: E731
        cells[f"one by one, {threads}"] = SINGLE / best(one)
    return cells


def bench(folder: Path, arguments: list[str]) -> list[dict[str, Any]]:
    command = [*BENCH, "--json", "--base", str(folder / "base.f32"), "--queries", str(folder / "queries.f32"),
               *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def frosh_cells(folder: Path, size: int, truth: np.ndarray) -> dict[str, float]:
    import numpy as np

    hits = folder / "hits"
    lines = bench(folder, ["--dim", str(DIM), "--bytes", str(size), "--only", "search", "--hits", str(hits)])
    cells = {f"{line['measure']}, {line['threads']}": line["value"] for line in lines}
    return cells | {"recall": recall(np.fromfile(hits, np.uint32).reshape(-1, K), truth)}


def show(rows: dict[str, dict[str, float]], ours: str) -> None:
    names = ["recall", "batch, 1", "batch, 2", "one by one, 1", "one by one, 2"]
    print(f"  {'':<14}" + "".join(f"{name:>16}" for name in names))
    for label, cells in rows.items():
        print(f"  {label:<14}" + "".join(f"{cells[name]:>16.3f}" if name == "recall" else f"{cells[name]:>16.0f}"
                                         for name in names))
        if label != ours:
            ratios = [rows[ours][name] / cells[name] for name in names[1:]]
            print(f"  {'  frosh over it':<14}" + " " * 14 + "".join(f"{ratio:>16.2f}" for ratio in ratios))


def compare_search(rows: int, sizes: list[int], all_clusters: list[int]) -> None:
    for clusters in all_clusters:
        say(f"{rows:,} rows, {clusters} clusters: exact neighbours")
        base, queries = make(rows, clusters)
        truth = exact(base, queries)
        with tempfile.TemporaryDirectory(prefix="frosh-quantizer-") as name:
            folder = Path(name)
            base.tofile(folder / "base.f32")
            queries.tofile(folder / "queries.f32")
            for size in sizes:
                cells: dict[str, dict[str, float]] = {}
                for factory in (f"PQ{2 * size}x4fs", f"PQ{size}"):
                    say(f"{size} bytes: {factory}")
                    cells[factory] = faiss_cells(factory, base, queries, truth)
                say(f"{size} bytes: frosh")
                cells["frosh"] = frosh_cells(folder, size, truth)
                title = f"{clusters} clusters" if clusters else "no clusters"
                print(f"\n{rows:,} rows, {title}, {size} bytes; queries per second", flush=True)
                show(cells, "frosh")


def compare_encoding(sizes: list[int]) -> None:
    """960 dimensions, two threads."""
    import faiss
    import numpy as np

    rng = np.random.default_rng(1)
    fall = (1.0 / (1.0 + np.arange(960) / 16)).astype(np.float32)
    rows = rng.standard_normal((TRAIN, 960), dtype=np.float32) * fall
    faiss.omp_set_num_threads(2)
    with tempfile.TemporaryDirectory(prefix="frosh-quantizer-") as name:
        folder = Path(name)
        rows.tofile(folder / "base.f32")
        rows[:QUERIES].tofile(folder / "queries.f32")
        for size in sizes:
            print(f"\n960 dimensions, {size} bytes, two threads", flush=True)
            for part in ("fit", "encode"):
                for line in bench(folder, ["--dim", "960", "--bytes", str(size), "--only", part]):
                    if line["threads"] == 2:
                        unit = "s" if part == "fit" else "rows/s"
                        print(f"  frosh {line['measure']:<24} {line['value']:>12.3f} {unit}", flush=True)
            for factory in (f"PQ{size}", f"OPQ{size},PQ{size}", f"RQ{size}x8"):
                index = faiss.index_factory(960, factory)
                additive = "RQ" in factory
                learned = rows[: RQ_TRAIN if additive else TRAIN]
                seconds = best(lambda: index.train(learned), turns=1)
                part = rows[: 2_000 if additive else ENCODED]
                rate = len(part) / best(lambda: index.sa_encode(part), turns=1)
                print(f"  FAISS {factory:<12} trained {seconds:.1f} s on {len(learned):,} rows, "
                      f"encodes {rate:>12.0f} rows/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--bytes", dest="sizes", type=int, action="append", choices=[8, 16, 32])
    parser.add_argument("--clusters", type=int, action="append", metavar="N", help="0 for rows without clusters")
    parser.add_argument("--no-encode", action="store_true", help="search only")
    parser.add_argument("--only-encode", action="store_true", help="training and encoding only")
    args = parser.parse_args()
    run_inside_venv(PINS)
    if not args.only_encode:
        compare_search(args.rows, args.sizes or [8, 16], args.clusters or [100, 1000, 0])
    if not args.no_encode:
        compare_encoding(args.sizes or [8, 16, 32])


if __name__ == "__main__":
    main()
