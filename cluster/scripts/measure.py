#!/usr/bin/env python3
"""Speed of the query engine, as ratios from one run.

    python3 cluster/scripts/measure.py --frosh target/release/frosh --cluster cluster/target/release/frosh-cluster

Prints: the engine against the plain program on the same Parquet files and one core; an executor with two slots against
one; the size of a partial sketch and the time of a merge. Needs Python alone, and taskset. About three minutes.
"""

import argparse
import array
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def make_files(args, folder):
    """Rows are pieces of one long sequence of random numbers, so that making them takes no time."""
    generator = random.Random(7)
    numbers = array.array("f", (generator.gauss(0, 1) for _ in range(1 << 18))).tobytes()
    paths = []
    for number in range(args.files):
        flat = os.path.join(folder, f"{number}.fbin")
        with open(flat, "wb") as file:
            file.write(struct.pack("<II", args.rows, args.dim))
            for _ in range(args.rows):
                at = 4 * generator.randrange((1 << 18) - args.dim)
                file.write(numbers[at : at + 4 * args.dim])
        path = os.path.join(folder, f"{number}.parquet")
        run([args.frosh, "convert", flat, path, "-q"])
        os.remove(flat)
        paths.append(path)
    return paths


def plain(args, folder, paths):
    """Seconds of `frosh sketch` for each file and `frosh merge`, on one core."""
    seconds, sketches = 0.0, []
    for number, path in enumerate(paths):
        sketch = os.path.join(folder, f"{number}.sketch")
        command = ["taskset", "-c", "0", args.frosh, "sketch", path, "--worker", "auto", "--threads", "1", "--json"]
        command += ["--sketch-rows", 2 * args.bits, "-o", sketch]
        seconds += json.loads(run(command))["seconds"]["total"]
        sketches.append(sketch)
    start = time.monotonic()
    run(["taskset", "-c", "0", args.frosh, "merge", *sketches, "-q", "-o", os.path.join(folder, "merged.sketch")])
    merge = time.monotonic() - start
    return seconds + merge, merge, os.path.getsize(sketches[0])


def local(args, folder, paths):
    """Seconds of `frosh-cluster local train` on one core, without the fit."""
    command = ["taskset", "-c", "0", args.cluster, "local", "train", *paths, "--threads", "1", "--bits", args.bits]
    command += ["--json", "--force", "-o", os.path.join(folder, "local.frosh")]
    command += ["--sketch", os.path.join(folder, "local.sketch")]
    return json.loads(run(command))["seconds"]["sketch"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """A scheduler and one executor."""

    def __init__(self, args, folder, slots):
        port, data, tasks = free_port(), free_port(), free_port()
        self.url = f"df://127.0.0.1:{port}"
        self.log = open(os.path.join(folder, f"cluster-{slots}.log"), "w")
        options = dict(stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        scheduler = [args.cluster, "scheduler", "--bind", f"127.0.0.1:{port}"]
        self.processes = [subprocess.Popen(scheduler, **options)]
        executor = [args.cluster, "executor", "--scheduler", self.url, "--slots", str(slots)]
        executor += ["--port", str(data), "--task-port", str(tasks)]
        self.processes.append(subprocess.Popen(executor, **options))
        for _ in range(300):
            time.sleep(0.1)
            if "Received register executor request" in open(self.log.name).read():
                break
        time.sleep(1)

    def train(self, args, folder, paths):
        command = [args.cluster, "train", "--scheduler", self.url, *paths, "--bits", args.bits, "--json", "--force"]
        command += ["-o", os.path.join(folder, "cluster.frosh"), "--sketch", os.path.join(folder, "cluster.sketch")]
        return json.loads(run(command))["seconds"]["sketch"]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--frosh", default="target/release/frosh")
    parser.add_argument("--cluster", default="cluster/target/release/frosh-cluster")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = make_files(args, folder)
        rows = args.files * args.rows
        size = sum(map(os.path.getsize, paths))
        print(f"{rows} rows of {args.dim} f32 in {args.files} Parquet files, {size / 1e6:.0f} MB, {args.bits} bits")
        programs, engines, ones, twos = [], [], [], []
        one, two = Cluster(args, folder, 1), Cluster(args, folder, 2)
        try:
            # In turn, so that a change of the machine's speed meets all alike. The first turn warms caches up.
            for turn in range(args.repeats + 1):
                seconds, merge, sketch = plain(args, folder, paths)
                times = [seconds, local(args, folder, paths)]
                times += [one.train(args, folder, paths), two.train(args, folder, paths)]
                if turn > 0:
                    for kept, seconds in zip([programs, engines, ones, twos], times):
                        kept.append(seconds)
        finally:
            one.stop()
            two.stop()
        same = {open(os.path.join(folder, f"{name}.sketch"), "rb").read() for name in ["merged", "local", "cluster"]}
        print(f"the same bytes from program, engine and cluster: {'yes' if len(same) == 1 else 'NO'}")
        program, engine, first, second = (min(times) for times in [programs, engines, ones, twos])
        print(f"plain program, one core:          {program:.2f} s, {rows / program:,.0f} rows/s")
        print(f"engine, one core:                 {engine:.2f} s, {rows / engine:,.0f} rows/s")
        print(f"engine / plain program:           {engine / program:.2f}")
        print(f"cluster, one executor, 1 slot:    {first:.2f} s, {rows / first:,.0f} rows/s")
        print(f"cluster, one executor, 2 slots:   {second:.2f} s, {rows / second:,.0f} rows/s")
        print(f"2 slots / 1 slot, rows a second:  {first / second:.2f}")
        print(f"a partial sketch:                 {sketch / 1e6:.1f} MB")
        print(f"merge of {args.files}:                       {merge:.2f} s, {1e3 * merge / args.files:.0f} ms each")


if __name__ == "__main__":
    main()
