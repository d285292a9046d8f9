#!/usr/bin/env bash
# Runs all tests of the project: the library and the program, the cluster workspace, the Python package.
#
#   scripts/test.sh [all|core|cluster|python]
#
# What a machine lacks (Python, the right to make network namespaces, real data) is skipped aloud: SKIPPED. The build
# folders of the cluster and the Python package are kept in ~/.cache/frosh, since their dependencies take long to build.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
cache=${FROSH_CACHE:-$HOME/.cache/frosh}
wants() { [ "$what" = all ] || [ "$what" = "$1" ]; }
case "$what" in all | core | cluster | python) ;; *)
    echo "usage: scripts/test.sh [all|core|cluster|python]" >&2
    exit 2
    ;;
esac

# The tests of the cluster and of Python compare with the program. `cargo test` builds it. To build it once more alone would compile the
# library again, since the features of dependencies differ.
if wants core; then
    cargo test --release
else
    cargo build --release -p frosh-cli
fi
if wants cluster; then
    export FROSH_PROGRAM=${FROSH_PROGRAM:-$PWD/target/release/frosh}
    (cd cluster && CARGO_TARGET_DIR="$cache/cluster-target" cargo test --release)
fi
if wants python; then
    export FROSH_PROGRAM=${FROSH_PROGRAM:-$PWD/target/release/frosh}
    FROSH_PYTHON_CACHE="$cache" bash scripts/test_python.sh
fi
