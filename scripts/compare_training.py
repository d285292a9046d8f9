#!/usr/bin/env python3
"""Compare the training speed of FROSH, FAISS PCAMatrix and scikit-learn IncrementalPCA.

All three learn 64 directions from about 800 MB of f32 rows in 960 dimensions, on one
thread. A time is reported as a multiple of a floor: the cheapest pass over the same
memory that still reads every value (a column mean). FROSH is measured against the floor
of its own Rust benchmark, the Python tools against a floor measured here.

    python3 scripts/compare_training.py                    # the benchmark, then the rest
    python3 scripts/compare_training.py --frosh-json FILE  # FROSH from a saved run
    python3 scripts/compare_training.py --full             # IncrementalPCA on all rows

The pinned packages go into `.venv` at the root of the repository (Python 3.11 or later).
The exit code is 0 whether or not the goals are met; otherwise something failed to run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from common import ROOT, run_inside_venv, say

if TYPE_CHECKING:
    import numpy as np

# Maths libraries read these once, when they load: set them before any import of numpy.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# scipy is pinned too: IncrementalPCA spends its time in scipy's SVD.
PINS = ["numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1", "faiss-cpu==1.15.1"]

DIM, BITS = 960, 64
ROWS = 800_000_000 // (4 * DIM)
BATCH = 4096
PREFIX = 24_576
FAISS_GOAL, IPCA_GOAL = 15.0, 300.0
BENCH = ["cargo", "bench", "-p", "frosh", "--bench", "speed", "--",
           "--only", str(DIM), "--bits", str(BITS), "--json"]


def read_frosh(saved: Path | None) -> dict[str, Any]:
    """The single-threaded cell for DIM and BITS, from a saved run or from the benchmark."""
    if saved is not None:
        text = saved.read_text()
    else:
        say("running the FROSH benchmark")
        text = subprocess.check_output(BENCH, cwd=ROOT, text=True)
    cells = [json.loads(line) for line in text.splitlines() if line.lstrip().startswith("{")]
    for cell in cells:
        if (cell["dim"], cell["bits"], cell["threads"]) == (DIM, BITS, 1):
            return cell
    sys.exit(f"no cell with dim {DIM}, bits {BITS}, threads 1 among {len(cells)} JSON lines")


def make_data() -> np.ndarray:
    """Clustered rows whose spectrum falls off as a power law, filled block by block."""
    import numpy as np

    rng = np.random.default_rng(1)
    decay = (np.arange(1, DIM + 1, dtype=np.float32) ** -0.5)[:, None]
    mix = decay * rng.standard_normal((DIM, DIM), dtype=np.float32) / np.float32(DIM**0.5)
    centres = rng.standard_normal((100, DIM), dtype=np.float32) @ mix * np.float32(2)
    x = np.empty((ROWS, DIM), dtype=np.float32)
    for start in range(0, ROWS, BATCH):
        out = x[start : start + BATCH]
        np.matmul(rng.standard_normal(out.shape, dtype=np.float32), mix, out=out)
        out += centres[rng.integers(len(centres), size=len(out))]
    return x


def best(repeats: int, work: Callable[[], Any]) -> float:
    """The shortest of `repeats` timings, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_floor(x: np.ndarray) -> tuple[float, str]:
    """The fastest of several column means over `x`, best of 3 each, and its name."""
    import numpy as np

    ones = np.ones(ROWS, dtype=np.float32)
    column_sums: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "sum": lambda block: block.sum(axis=0),
        "gemv": lambda block: ones[: len(block)] @ block,
    }

    def mean(column_sum: Callable[[np.ndarray], np.ndarray], rows: int) -> np.ndarray:
        total = np.zeros(DIM)
        for start in range(0, ROWS, rows):
            total += column_sum(x[start : start + rows])
        return total / ROWS

    return min((best(3, lambda: mean(column_sum, rows)), f"{name}, {rows:,} rows at a time")
               for name, column_sum in column_sums.items() for rows in (256, 2048, ROWS))


def time_faiss(x: np.ndarray) -> float:
    """Seconds for PCAMatrix.train on every row, best of 2."""
    import faiss

    faiss.omp_set_num_threads(1)
    # train() draws a subsample only above max_points_per_d * d_in rows: by default
    # 1000 * 960 = 960,000. We give 208,333, so every row is used, and used in place.
    if ROWS > faiss.PCAMatrix(DIM, BITS).max_points_per_d * DIM:
        sys.exit("FAISS would train on a subsample of the rows: the comparison would be unfair")
    return best(2, lambda: faiss.PCAMatrix(DIM, BITS).train(x))


def time_ipca(x: np.ndarray, rows: int) -> float:
    """Seconds for IncrementalPCA on the first `rows` rows, after an untimed batch."""
    from sklearn.decomposition import IncrementalPCA

    def fit(part: np.ndarray) -> None:
        # partial_fit copies its batch, as fit does, so `x` is left as it was.
        model = IncrementalPCA(n_components=BITS, batch_size=BATCH)
        for start in range(0, len(part), BATCH):
            model.partial_fit(part[start : start + BATCH])

    fit(x[:BATCH])
    return best(1, lambda: fit(x[:rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frosh-json", type=Path, metavar="FILE",
                        help="a saved run: JSON lines of the benchmark, instead of running cargo")
    parser.add_argument("--full", action="store_true",
                        help=f"fit IncrementalPCA on all {ROWS:,} rows, not {PREFIX:,} (minutes)")
    args = parser.parse_args()
    run_inside_venv(PINS)

    cell = read_frosh(args.frosh_json)
    if cell["rows"] != ROWS:
        print(f"Note: FROSH ran on {cell['rows']:,} rows; its seconds are scaled to {ROWS:,}")
    frosh_floors = cell["frosh_floors"]
    frosh_seconds = frosh_floors * cell["floor_seconds"] * ROWS / cell["rows"]

    say(f"making {ROWS:,} x {DIM} rows")
    x = make_data()
    say("measuring the floor")
    floor, way = measure_floor(x)
    say("training FAISS PCAMatrix")
    faiss_seconds = time_faiss(x)
    ipca_rows = ROWS if args.full else PREFIX
    say(f"fitting IncrementalPCA on {ipca_rows:,} rows")
    ipca_seconds = time_ipca(x, ipca_rows) * ROWS / ipca_rows

    print(f"\n{ROWS:,} rows x {DIM} f32, {BITS} bits, 1 thread; {', '.join(PINS)}")
    print(f"floor: {cell['floor_seconds']:.4f} s in Rust, {floor:.4f} s here ({way})")
    print(f"\n{'tool':<24}{'floors':>10}{'seconds':>10}{'times slower than FROSH':>26}"
          f"{'by raw seconds':>17}")
    print(f"{'FROSH':<24}{frosh_floors:>10.2f}{frosh_seconds:>10.3f}{1:>26.1f}{1:>17.1f}")
    verdicts = []
    ipca_name = "IncrementalPCA" if args.full else "IncrementalPCA*"
    for tool, seconds, goal in (("FAISS PCAMatrix", faiss_seconds, FAISS_GOAL),
                                (ipca_name, ipca_seconds, IPCA_GOAL)):
        floors = seconds / floor
        ratio = floors / frosh_floors
        print(f"{tool:<24}{floors:>10.1f}{seconds:>10.2f}{ratio:>26.1f}"
              f"{seconds / frosh_seconds:>17.1f}")
        verdict = "met" if ratio >= goal else "not met"
        verdicts.append(f"goal: {tool.rstrip('*')} at least {goal:.0f} times slower: "
                        f"{ratio:.1f}, {verdict}")
    if not args.full:
        print(f"* timed on {ipca_rows:,} rows, then scaled by rows to {ROWS:,}; --full times all")
    print("\n" + "\n".join(verdicts))


if __name__ == "__main__":
    main()
