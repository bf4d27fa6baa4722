# `make` alone lists the targets.

# Builds stay outside the checkout, where a new clone finds them again.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
export CARGO_TARGET_DIR ?= $(CACHE)/incumbent/target

CARGO ?= cargo
# Tests mostly wait for servers: more of them at once than there are cores.
export RUST_TEST_THREADS ?= 4
# What is started in the background without job control ignores interrupts, and so would all that the tests interrupt.
DEFAULT_SIGNALS := $(shell env --default-signal=INT true 2>/dev/null && echo env --default-signal=INT,QUIT,HUP)
# `make demo LOCK=sqlite` and `LOCK=memory` run the demo without a server.
LOCK ?= nats

.DEFAULT_GOAL := help
.PHONY: help demo test verify protocol sim model chaos mutations mutants histories fuzz differential etcd-versions soak lint deps layers api bench bench-scale bench-proxy bench-takeover traffic doc cli-doc diagrams pictures tools clean rust chart manifests dist check-dist wine

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: rust ## Ten workers elect a leader, it is killed, another takes over and a timeline shows it (LOCK=sqlite: in a file; LOCK=memory: in one process; neither needs a server; SVG=FILE draws the timeline)
	@[ "$(LOCK)" = memory ] || [ "$(LOCK)" = sqlite ] || scripts/install-nats.sh 2.15.1
	$(CARGO) build --package incumbent-demo $(if $(filter sqlite,$(LOCK)),--features sqlite)
	@LOCK=$(LOCK) SVG="$(SVG)" scripts/demo.sh "$(CARGO_TARGET_DIR)/debug/ten_workers"

# By another name, as `make -n` runs the lines that have the usual one.
SUBMAKE = $(MAKE) --no-print-directory

# Each step runs even if another fails: one run shows all that is wrong.
test: rust ## What everybody runs: lint, and every test that needs no server but the newest nats-server
	@scripts/install-nats.sh 2.15.1
	@$(DEFAULT_SIGNALS) scripts/parts.sh "$(SUBMAKE) lint" "scripts/run-tests.sh quick"

verify: rust tools ## All the rest: every other test and server, a part of the mutations (ALL=1: each), dependencies, the oldest Rust, Windows and macOS, the alerts, the dashboard, the chart and the workflows
	@$(DEFAULT_SIGNALS) scripts/parts.sh "scripts/run-tests.sh rest" \
		"$(SUBMAKE) mutations $(if $(ALL),ALL=1,PART=$(PART_OF_COMMIT))" \
		"$(SUBMAKE) deps" scripts/check-features.sh scripts/check-msrv.sh \
		scripts/check-dashboards.sh scripts/check-targets.sh scripts/check-chart.sh scripts/check-workflows.sh \
		scripts/check-dockerfiles.sh scripts/check-balancers.sh

protocol: rust ## Test the rules of the protocol, within seconds of a change to src/protocol
	$(CARGO) test --package incumbent --no-default-features --features _history --lib --test protocol

sim: rust ## Simulate elections and faults until a promise breaks (MINUTES=…; SEED=plain:17 plays that schedule again)
	$(CARGO) run --release --package incumbent-sim -- $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

differential: rust tools ## Play random operations on a store and on its model (STORE=nats-2.15.1-r3, postgres, sqlite, gcs, s3, azure, kubernetes or etcd, OPERATIONS=10000 SEED=… STEPS=8)
	$(CARGO) run --package incumbent-differential -- --store $(or $(STORE),nats-2.15.1) $(if $(OPERATIONS),--operations $(OPERATIONS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))

# etcd 3.7 is what `make verify` runs on.
etcd-versions: rust ## Run the tests of etcd on the version of Debian, and on 3.5 and 3.6 (VERSIONS=3.5.35)
	@for version in $(or $(VERSIONS),debian 3.5.35 3.6.16); do \
		echo "etcd: $$version"; \
		ETCD=$$version $(CARGO) test --quiet --package incumbent --all-features --test etcd || exit 1; \
	done

soak: rust ## Thousands of candidates on a cluster that is restarted (MINUTES=30 ELECTIONS=1000 CANDIDATES=20), or a set whose members are attacked (SETS=nats, nats-cluster or postgres)
	@scripts/install-nats.sh 2.15.1
	@$(if $(filter postgres,$(SETS)),scripts/install-postgres.sh)
	$(CARGO) run --release --package incumbent-attack -- $(if $(SETS),sets --store $(SETS),soak) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(ELECTIONS),--elections $(ELECTIONS)) $(if $(CANDIDATES),--candidates $(CANDIDATES))

CARGO_MUTANTS = cargo-mutants@27.1.0

# CI breaks a tenth of the rules, another one with each commit: all of them take more than half an hour.
PART_OF_COMMIT = $(shell echo $$((0x$$(git rev-parse HEAD 2>/dev/null | cut -c 1-4 | grep . || echo 0) % 10 + 1))/10)

# Outside the checkout, and kept: what has not changed is not compiled again.
mutations: rust tools ## Break each rule of the protocol in a copy, and check that the tests notice (ALL=1 runs each of them, PART=1/4, ONLY=text)
	$(CARGO) run --package incumbent-mutations -- --tree "$(CARGO_TARGET_DIR)/mutations" $(if $(ALL),--all) $(if $(PART),--part $(PART)) $(if $(ONLY),"$(ONLY)")

# In a copy that it builds itself: tests of the protocol alone, without servers. `.cargo/mutants.toml` names them.
mutants: rust ## Mutate each function of src/protocol with cargo-mutants, and list what its tests do not notice: takes hours (FILE=src/protocol/drain.rs: of one file)
	@tools=$$(scripts/install-cargo-tools.sh $(CARGO_MUTANTS)) && env -u CARGO_TARGET_DIR \
		"$$tools/$(CARGO_MUTANTS)/bin/cargo-mutants" mutants --output "$(CARGO_TARGET_DIR)" --file "$(or $(FILE),src/protocol/**/*.rs)"

histories: rust ## Write tests/protocol/histories from the scenarios: review the difference
	INCUMBENT_HISTORIES=write $(CARGO) test --quiet --package incumbent --all-features --test protocol histories::

# Half of the time for what parses, half for the protocol; all targets of a half at once, with fresh seeds. Coverage-guided
# fuzzing of one target needs a nightly compiler: `cargo install cargo-bolero`, then
# `cargo +nightly bolero test --all-features nats::fuzz::entries::any_stored_message_means_something`.
fuzz: export BOLERO_RANDOM_ITERATIONS = 18446744073709551615
fuzz: export BOLERO_RANDOM_TEST_TIME_MS = $(shell awk 'BEGIN { print int($(or $(MINUTES),10) * 30000) }')
fuzz: rust ## Feed hostile bytes to what parses them, for MINUTES=10
	RUST_TEST_THREADS=64 $(CARGO) test --profile fuzz --package incumbent --package incumbent-cli --lib --bins --test protocol -- fuzz:: --nocapture

lint: rust ## Formatting, clippy, documentation: no warnings, no broken links
	@scripts/check-rust.sh fmt clippy
	@scripts/check-docs.py
	@docs/diagrams/render.py --check
	@scripts/plot.py --check docs/diagrams/*.csv
	@scripts/timeline.py --check
	$(CARGO) run --quiet --package incumbent-layers
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy --package incumbent --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude incumbent-cli --all-features --no-deps

deps: rust ## Check that each dependency is used, and its license, source and version allowed (builds two programs, once)
	@scripts/check-deps.sh

layers: rust ## Check that no module uses one of a layer above it, and none each other in a circle
	$(CARGO) run --quiet --package incumbent-layers

bench: rust ## Measure
	@scripts/install-nats.sh 2.15.1
	@scripts/install-postgres.sh
	@scripts/install-object-stores.sh >/dev/null
	$(CARGO) bench --package incumbent --all-features

traffic: rust ## Measure how long requests fail when the leader changes, through each balancer (PATHS="haproxy caddy")
	@scripts/install-nats.sh 2.15.1
	@scripts/install-balancers.sh
	$(CARGO) build --release --package incumbent-cli
	INCUMBENT="$(CARGO_TARGET_DIR)/release/incumbent" scripts/measure-traffic.py --events stop,move,kill,power \
		$(or $(PATHS),haproxy caddy envoy nginx redirect)

bench-scale: rust ## Measure thousands of standbys and elections (SIZES="49 1000 10000"), for docs/benchmarks.md
	@scripts/install-nats.sh 2.15.1
	@scripts/bench-scale.sh

bench-proxy: rust ## Measure `incumbent proxy` beside HAProxy, with PostgreSQL as the leader (as root)
	@scripts/install-nats.sh 2.15.1
	@scripts/install-postgres.sh
	@scripts/install-packages.sh "put haproxy on the PATH" haproxy
	$(CARGO) build --release --workspace --all-features --bin incumbent
	scripts/bench-proxy.py "$(CARGO_TARGET_DIR)/release/incumbent"

model: rust ## Explore every schedule of small elections (CANDIDATES=2, or 3, MINUTES=5)
	$(CARGO) run --release --package incumbent-model -- --candidates $(or $(CANDIDATES),2) --minutes $(or $(MINUTES),5)

chaos: rust ## Attack elections on a real cluster for MINUTES=5 (SEED=…), and print the results
	@scripts/install-nats.sh 2.15.1
	@tests/programs/nats-with-clock/build.sh .tools/clocknats-2.15.1/nats-server
	$(CARGO) build --release --package incumbent-attack --package incumbent-cli
	"$(CARGO_TARGET_DIR)/release/incumbent-attack" chaos --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

bench-takeover: RIVALS ?= etcd,etcd-fast,keepalived,keepalived-fast
bench-takeover: rust ## Measure how soon a leader is replaced whose host is gone, beside etcd's own election and keepalived (as root; TIMES=30 LEASES=250,500,1000,5000 LOCKS=nats,nats-3,quorum,etcd; without others: RIVALS=), or with CALM=1200, in seconds, the terms that elections of all leases at once lose (LOADS=none,cpu,disk)
	@scripts/install-nats.sh 2.15.1
	@scripts/install-etcd.sh >/dev/null
	@scripts/install-keepalived.sh
	@tests/programs/build.sh etcd >/dev/null
	$(CARGO) build --release --package incumbent-attack
	"$(CARGO_TARGET_DIR)/release/incumbent-attack" takeover $(if $(LEASES),--leases $(LEASES)) \
		$(if $(CALM),--calm $(CALM) --locks $(or $(LOCKS),nats) $(if $(LOADS),--loads $(LOADS)), \
		$(if $(RIVALS),--rivals $(RIVALS)) $(if $(LOCKS),--locks $(LOCKS)) $(if $(TIMES),--times $(TIMES)))

doc: rust ## Build the documentation and print its path
	$(CARGO) doc --package incumbent --all-features --no-deps
	@echo "$(CARGO_TARGET_DIR)/doc/incumbent/index.html"

.PHONY: book workflows changelog
book: rust ## Build the documentation site from docs/, and check its links (builds mdbook, once)
	@scripts/book.sh

workflows: ## Check .github/workflows: actionlint, zizmor, and that what they run is here
	@scripts/check-workflows.sh

changelog: ## Print a draft of the next section of CHANGELOG.md, from the commits since the last release
	@scripts/changelog.sh

api: rust ## Print the public items of the library, to compare two commits
	@scripts/api.sh

cli-doc: rust ## Write docs/cli.md from the reference of the program
	$(CARGO) run --package incumbent-cli -- reference > docs/cli.md.new
	mv docs/cli.md.new docs/cli.md

diagrams: ## Draw docs/diagrams/*.svg from the texts and figures beside them
	@docs/diagrams/render.py
	@scripts/plot.py --write docs/diagrams/*.csv

pictures: rust ## Draw docs/pictures/ from runs of the programs (ONLY=demo)
	@scripts/install-nats.sh 2.15.1
	@scripts/install-chromium.sh
	@scripts/pictures.sh $(ONLY)

tools: ## Install the nats-servers that the tests start, into .tools, PostgreSQL, the object stores and Chromium, and build etcd, the Kubernetes API server, kubectl and Helm (minutes, once)
	@scripts/install-nats.sh
	@scripts/install-postgres.sh
	@scripts/install-democracy.sh
	@tests/programs/build.sh kube-apiserver
	@tests/programs/build.sh clientgo
	@tests/programs/build.sh kubectl
	@scripts/install-helm.sh >/dev/null
	@scripts/install-object-stores.sh
	@scripts/install-etcd.sh >/dev/null
	@scripts/install-chromium.sh

wine: rust ## Run the tests that need no server as Windows programs, on wine (builds them, once: minutes)
	@scripts/test-on-wine.sh

dist: rust ## Build what a release gives away into dist/ (TARGETS=x86_64-unknown-linux-musl; REPRODUCIBLE=1 builds it twice and compares)
	@scripts/dist.sh $(if $(REPRODUCIBLE),--check-reproducible) $(TARGETS)

check-dist: ## Install, use and remove what is in dist/, each in a clean place (as root, with apt-get)
	@scripts/check-dist.sh
	@scripts/check-hook-units.sh

clean: ## Remove what was built, and .tools
	rm -rf .tools
	$(CARGO) clean

chart: rust ## Check the Helm chart and the kustomize base on a real API server (builds Helm and kubectl, once: minutes)
	@scripts/check-chart.sh

manifests: ## Write the manifests in deploy/ from their sources
	@scripts/render-manifests.sh

rust:
	@scripts/check-rust.sh
	@scripts/fresh.sh
