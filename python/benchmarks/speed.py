#!/usr/bin/env python3
"""The speed of `partial_fit` from NumPy beside the Rust library, on the same rows in memory; and its memory.

    python python/benchmarks/speed.py [--megabytes 400]

Runs of both alternate, each in a process of its own, and the shortest of each counts. The goal is 10 %. Memory is the
growth of the largest resident size by `partial_fit`, beside the size of the array: no copy is made.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BITS = 64

CHILD = """
import resource, sys, time
import numpy as np, frosh
path, dim, bits, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
X = np.fromfile(path, np.float32).reshape(-1, dim)
X.sum()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
for _ in range(runs):
    hasher = frosh.Hasher(bits)
    start = time.perf_counter()
    hasher.partial_fit(X)
    print(time.perf_counter() - start)
print("grown", (peak() - before) * 1024)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    import numpy as np

    build = ["cargo", "build", "--release", "-q", "--manifest-path", str(HERE / "rust/Cargo.toml")]
    subprocess.check_call(build)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "rust/target"))
    program = target / "release/frosh-python-speed"
    print(f"{'dim':>5} {'rows':>9} {'Rust':>8} {'Python':>8} {'ratio':>6}   {'array':>8} {'memory grown':>12}")
    for dim in (128, 384, 960):
        rows = options.megabytes * 1_000_000 // (4 * dim)
        rng = np.random.default_rng(1)
        decay = np.arange(1, dim + 1, dtype=np.float32) ** -0.5
        with tempfile.NamedTemporaryFile(suffix=".raw") as file:
            for start in range(0, rows, 10_000):
                block = rng.standard_normal((min(10_000, rows - start), dim), dtype=np.float32) * decay
                file.write(block.tobytes())
            file.flush()
            rust, python, grown = [], [], 0
            for _ in range(options.rounds):
                said = subprocess.check_output([program, file.name, str(dim), str(2 * BITS), "3"], text=True)
                rust += [float(line) for line in said.split()]
                said = subprocess.check_output([sys.executable, "-c", CHILD, file.name, str(dim), str(BITS), "3"], text=True)
                *times, last = said.splitlines()
                python += [float(line) for line in times]
                grown = int(last.split()[1])
        best = min(rust), min(python)
        size = rows * dim * 4
        print(
            f"{dim:>5} {rows:>9,} {best[0]:>7.3f}s {best[1]:>7.3f}s {best[1] / best[0]:>6.3f}   "
            f"{size / 1e6:>5.0f} MB {grown / 1e6:>9.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
