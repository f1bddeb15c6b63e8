# ClearStream. Every target first runs tools/prepare, which names what is missing and installs it.
PREFIX ?= /usr/local
DESTDIR ?=
# Where the demo leaves results.json and report.html.
DEMO_OUT ?= .
# More options of `clearstream path` for the demo, such as --quick.
DEMO_OPTIONS ?=

.PHONY: help build demo test test-all bench install uninstall

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

build: ## build target/release/clearstream and, beside it, the libraries for netmap, C, MPI and MX programs
	@tools/prepare build
	@tools/cargo build --release --locked --package clearstream --package netmap-preload --package c-api --package fabric-provider --package mx-api

demo: build ## emulate two hosts and 1650 km on this machine; measure, explain, write report.html
	@tools/prepare demo
	@tools/demo "$(DEMO_OUT)" $(DEMO_OPTIONS)

test: ## check formatting, lints and documentation, and run the tests of every change
	@tools/prepare test
	@tools/test

test-all: ## the same and more, for hours: repeats, long runs, tests that need an idle machine
	@tools/prepare test
	@tools/test --all

# What `build` builds, and the benchmark program: the same features, so nothing is built twice.
bench: ## compare our figures with the peers', in target/bench.json (BENCH=--quick for a short run)
	@tools/prepare bench
	@tools/cargo build --release --locked --package clearstream --package netmap-preload --package c-api --package fabric-provider --package mx-api --package peers
	@$${CARGO_TARGET_DIR:-target}/release/peers $(BENCH)

install: ## install program, libraries, man pages, completions and systemd units in PREFIX (/usr/local)
	@test -x target/release/clearstream -a -e target/release/libclearstream_netmap.so -a -e target/release/libclearstream_user.so -a -e target/release/libclearstream_fi.so -a -e target/release/libmyriexpress.so || $(MAKE) --no-print-directory build
	@tools/install "$(DESTDIR)" "$(PREFIX)"

uninstall: ## remove what install put there
	@tools/install --remove "$(DESTDIR)" "$(PREFIX)"
