#!/bin/sh
# Runs every fuzz target, or those that are named, one after the other.
#   fuzz/run.sh [seconds [target...]]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-300}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- npy npz vecs bigann idx csv libsvm parquet arrow hdf5 safetensors jsonl words tables packed \
    ids whole_numbers sketcher sketch hasher quantizer codes index
# The instrumentation is unstable: a stable compiler allows it only so.
export RUSTC_BOOTSTRAP=1
# What fuzzing finds goes here, not to the seeds.
scratch=${FROSH_FUZZ_CORPUS:-${TMPDIR:-/tmp}/frosh-fuzz}

# Readers are threads of their own and are not joined, so that leaks cannot be told, at the end neither.
export ASAN_OPTIONS=detect_leaks=0

cargo fuzz build --release
failed=
for target in "$@"; do
    mkdir -p "$scratch/$target"
    cargo fuzz run --release "$target" "$scratch/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=16384 \
        -detect_leaks=0 -print_final_stats=1 || failed="$failed $target"
done
[ -z "$failed" ] || { echo "found something:$failed (see fuzz/artifacts)" >&2; exit 1; }
