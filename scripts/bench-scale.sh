#!/bin/sh
# The figures of docs/large-deployments.md: standbys against deliveries, creates and takeover time,
# elections against memory and CPU time, back-off policies against each other in a simulation, and
# clusters, leaf nodes and gateways. SIZES: numbers of standbys, each on a connection of its own;
# 10,000 need `ulimit -n` of 20,000 in this process and in the server.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
"$cargo" bench --quiet --bench stampede --features nats --no-run
for standbys in ${SIZES:-49 1000 10000}; do
    for groups in 0 8; do
        # Ten thousand standbys without groups are beyond two cores.
        if [ "$groups" = 0 ] && [ "$standbys" -gt 5000 ]; then continue; fi
        echo "## $standbys standbys, $groups queue groups"
        STANDBYS=$standbys QUEUE_GROUPS=$groups \
            "$cargo" bench --quiet --bench stampede --features nats
    done
done
echo "## elections of one process"
"$cargo" bench --quiet --bench footprint --features nats
echo "## back-off policies, simulated"
"$cargo" run --quiet --release --package incumbent-sim --bin policies -- \
    --csv docs/diagrams/backoff.csv
scripts/plot.py --write docs/diagrams/backoff.csv
echo "## several servers"
"$cargo" test --quiet --release --package incumbent --all-features --test nats topologies::figures -- \
    --ignored --nocapture --test-threads 1
