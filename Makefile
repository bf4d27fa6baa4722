# What one does with a checkout. `make` alone lists it.

# Builds stay outside the checkout, where a new clone finds them again.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
export CARGO_TARGET_DIR ?= $(CACHE)/incumbent/target

CARGO ?= cargo
# Tests mostly wait for servers: more of them at once than there are cores.
export RUST_TEST_THREADS ?= 4
# `make model CAMPAIGNERS=3 MINUTES=20` explores longer.
CAMPAIGNERS ?= 2
MINUTES ?= 5
# `make demo LOCK=memory` runs the demo without a server.
LOCK ?= nats

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench doc tools clean rust model

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: rust ## Ten workers elect a leader, it is killed, another takes over (LOCK=memory: in one process, without a server)
	@[ "$(LOCK)" = memory ] || scripts/tools.sh 2.15.1
	$(CARGO) build --release --example ten_workers
	@LOCK=$(LOCK) scripts/demo.sh "$(CARGO_TARGET_DIR)/release/examples/ten_workers"

test: rust lint tools ## Lint, then run every test, against real servers
	$(CARGO) test --workspace --all-features
	@scripts/oldest-rust.sh

lint: rust ## Formatting, clippy, documentation: no warnings
	@scripts/rust.sh fmt clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy --package incumbent --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude incumbent-cli --all-features --no-deps

bench: rust ## Measure
	@scripts/tools.sh 2.15.1
	$(CARGO) bench --package incumbent

model: rust ## Explore every schedule of small elections (CAMPAIGNERS, MINUTES)
	$(CARGO) run --release --package incumbent-model -- --campaigners $(CAMPAIGNERS) --minutes $(MINUTES)

doc: rust ## Build the documentation and say where it is
	$(CARGO) doc --package incumbent --all-features --no-deps
	@echo "$(CARGO_TARGET_DIR)/doc/incumbent/index.html"

tools: ## Install the nats-servers that the tests start, into .tools
	@scripts/tools.sh

clean: ## Remove what was built, and .tools
	rm -rf .tools
	$(CARGO) clean

rust:
	@scripts/rust.sh
