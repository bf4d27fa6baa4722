#!/bin/sh
# The figures and plots of docs/benchmarks.md: standbys against deliveries, creates and
# takeover time, elections against memory, CPU time and server load, what one bucket stores until
# renewals are late, a restart of the server, back-off policies in a simulation, and clusters, leaf
# nodes and gateways. SIZES: numbers of standbys, each on a connection of its own; 10,000 need
# `ulimit -n` of 20,000 in this process and in the server. Takes about an hour.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
plots=$PWD/docs/diagrams

bench() {
    "$cargo" bench --quiet --features nats --bench "$@"
}

# Empties a file of figures, but for the options of its plot and its header.
empty() {
    file=$plots/$1.csv
    { grep '^#:' "$file"; grep -v '^#:' "$file" | head -n 1; } > "$file.new"
    mv "$file.new" "$file"
}

bench stampede --no-run
empty standbys
for standbys in ${SIZES:-49 1000 10000}; do
    for groups in 0 8; do
        # Ten thousand standbys without groups are beyond two cores.
        if [ "$groups" = 0 ] && [ "$standbys" -gt 5000 ]; then continue; fi
        echo "## $standbys standbys, $groups queue groups"
        CSV=$plots/standbys.csv STANDBYS=$standbys QUEUE_GROUPS=$groups bench stampede
    done
done
echo "## elections of one process"
bench footprint
empty elections
CSV=$plots/elections.csv ELECTIONS=1000,5000,10000,50000,100000 LEASE=60 bench elections
echo "## renewals per second until they are late"
for replicas in 1 3; do
    for buckets in 1 4; do
        REPLICAS=$replicas BUCKETS=$buckets bench elections
    done
done
echo "## 100,000 elections, and a restart of the server"
ELECTIONS=99000 LEASE=60 MINUTES=10 bench footprint
echo "## back-off policies, simulated"
"$cargo" run --quiet --release --package incumbent-sim --bin policies -- --csv "$plots/backoff.csv"
scripts/plot.py --write "$plots"/*.csv
echo "## several servers"
"$cargo" test --quiet --release --package incumbent --all-features --test nats topologies::figures -- \
    --ignored --nocapture --test-threads 1
