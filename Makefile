# make test   everything: what it needs is built or installed first, into caches outside the tree
# make check  the quick part, for every edit: format, lints, unit tests
# Everything else stands below with a line of what it is for.

export XDG_CACHE_HOME ?= $(HOME)/.cache
# Outside the tree, so that a fresh clone does not compile every dependency again.
export CARGO_TARGET_DIR ?= $(XDG_CACHE_HOME)/bursar/target
export CARGO_TERM_COLOR ?= never

.PHONY: test check format lint unit tidy own packages parts suite conformance simulate simulate-quick fuzz bench mutants meter-outage

test: format lint tidy packages parts suite
	$(MAKE) --jobs=2 --output-sync=target simulate-quick conformance

check: format lint tidy unit

format:
	cargo fmt --all --check

# One folder of compiled code for all checkouts, and nothing in it that another one compiled.
own:
	scripts/own-target

lint: own
	cargo clippy --workspace --all-targets -- -D warnings

# What no compiler checks: files with two ideas in them, words that do not belong here, leftovers.
tidy:
	scripts/tidy

unit: own
	cargo test --workspace --lib --bins

# Small tools the tests call. Installed only where they are missing and we may.
packages:
	scripts/packages openssl:openssl prometheus:prometheus promtool:prometheus

# The real programs that tests run against, built once from their Go modules.
parts:
	scripts/parts kubectl >/dev/null
	scripts/parts etcd >/dev/null
	scripts/parts etcdctl >/dev/null
	scripts/parts etcdutl >/dev/null
	scripts/parts kube-apiserver >/dev/null
	scripts/parts e2e.test >/dev/null
	scripts/parts helm >/dev/null
	scripts/real-crds >/dev/null
	scripts/schemathesis >/dev/null

suite: own parts
	cargo test --workspace

# Kubernetes' own ResourceQuota tests against `bursar serve`.
conformance: own parts
	scripts/conformance

# The production engine with twenty faults a seed, optimised: unoptimised it would take ten times as long.
simulate-quick: own
	cargo run --release -p simulator -- --world estate --seeds 2000 --every-state

# The long run of the simulator, of all its worlds; SEEDS=n for more or fewer.
simulate: own
	cargo run --release -p simulator -- --seeds $(or $(SEEDS),100000)

# Mistakes made in a copy of the tree, each of which a test must catch; compiles the server for each.
mutants:
	scripts/mutants

# A meter that is down for SECONDS, a minute where nothing is said, while eight clients claim.
meter-outage: own
	BURSAR_METER_OUTAGE_SECONDS=$(or $(SECONDS),60) cargo test -p bursar --test serve while_a_meter_is_down -- --nocapture

# Every fuzz target under libFuzzer for SECONDS each, on the stable compiler; what is new joins the corpus outside the tree.
fuzz:
	scripts/fuzz all $(or $(SECONDS),600)

# All benchmarks; each ends with its figures.
bench: own
	for name in ledger serve quota capsule karmada datum orgs operator stall; do cargo run --release -- bench $$name || exit 1; done
