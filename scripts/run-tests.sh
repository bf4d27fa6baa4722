#!/usr/bin/env bash
# Runs a part of the tests, and prints how long each step took:
#
#     run-tests.sh quick     those that need no server but the newest nats-server
#     run-tests.sh rest      all others: those that wait for servers and leases beside those that keep the cores busy
#
# Both together run every test of `cargo test --workspace --all-features`. What no list below names is in the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

# Both parts use the same features, so that nothing is compiled twice.
tests="${CARGO:-cargo} test --workspace --all-features --no-fail-fast"

# Integration tests that are quick as a whole, with the unit tests.
quick=(protocol memory metrics spans)
quick_targets=$(printf -- ' --test %s' "${quick[@]}")
# Integration tests that wait for nothing, and leave the cores to those that wait for servers and leases.
busy=(check large)

# Integration tests of which a part is quick. A list has parts of test names, as the test program takes them.
older_servers="v2_10 v2_11 v2_12 v2_14"
several_servers="topologies::"
other_locks="etcd_doctor:: kubernetes:: golden::kubernetes object_storage postgres refused_writes::"
sentinel_locks="locks::postgres locks::kubernetes"
browser="page::"
sqlite="sqlite names:: of_a_file"
skip() { printf -- ' --skip %s' $1; }

case ${1:-} in
quick)
    # A test that needs an older server and does not say so in its name fails wherever one is installed, too.
    export ONLY_NEWEST_SERVER=1
    # Most tests wait for leases: more of them run at once than there are cores.
    exec scripts/parts.sh \
        "$tests --no-run --lib --bins$quick_targets --test nats --test run --test sql --test operator --test sentinel --test schedules" \
        "RUST_TEST_THREADS=8 $tests --lib --bins$quick_targets" \
        "RUST_TEST_THREADS=8 $tests --test nats --$(skip "$older_servers $several_servers")" \
        "RUST_TEST_THREADS=8 $tests --test run -- --skip postgres" \
        "$tests --test sql -- $sqlite" \
        "RUST_TEST_THREADS=8 $tests --test operator --$(skip "$older_servers $several_servers $other_locks $browser")" \
        "$tests --test sentinel --$(skip "$sentinel_locks")" \
        "SCHEDULES=200 $tests --test schedules"
    ;;
rest)
    $tests --no-run
    exec scripts/parts.sh -j 2 "scripts/run-tests.sh waiting" "scripts/run-tests.sh busy"
    ;;
waiting)
    targets=$(${CARGO:-cargo} metadata --no-deps --format-version 1 | python3 -c '
import json, sys
targets = [target for package in json.load(sys.stdin)["packages"] for target in package["targets"]]
print(*sorted({target["name"] for target in targets if "test" in target["kind"]} - set(sys.argv[1:])))
' "${quick[@]}" "${busy[@]}" nats run sql operator sentinel schedules upgrade)
    # Clusters keep the cores busier: fewer of them at once.
    clusters=$tests
    tests="RUST_TEST_THREADS=8 $tests"
    steps=()
    for target in $targets; do
        steps+=("$tests --test $target")
    done
    exec scripts/parts.sh \
        "${steps[@]}" \
        "$clusters --test nats -- $older_servers $several_servers" \
        "$tests --test run -- postgres" \
        "$tests --test sql --$(skip "$sqlite")" \
        "$tests --test operator -- $older_servers $several_servers $other_locks $browser" \
        "$tests --test sentinel -- $sentinel_locks" \
        scripts/test-upgrade.sh
    ;;
busy)
    steps=()
    for target in "${busy[@]}" schedules; do
        steps+=("nice -n 19 $tests --test $target")
    done
    exec scripts/parts.sh "${steps[@]}" "nice -n 19 $tests --doc"
    ;;
*)
    sed -n '2,6s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
