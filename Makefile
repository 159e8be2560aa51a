# What one types. Each target installs what it needs (and says so), then hands over to one script or one preset.
# Everything that is built goes to build/; everything that is downloaded goes to a cache outside the tree.
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
SECONDS_EACH ?= 1800
KILLS ?= 10000

.PHONY: help build demo test bench storm fuzz tidy test-frameworks test-frameworks-rare install clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## two programs share one card, step by step, each claim checked (a simulated card if there is no real one)
	@scripts/install-deps test
	@scripts/build dev
	@tests/demo/demo

build: ## build/dev: the program, the library, the simulated driver
	@scripts/install-deps build
	@scripts/build dev

test: ## everything that CI runs but the frameworks: tests, the same under ASan, UBSan and TSan, fuzzers 20 s each
	@scripts/install-deps test
	@scripts/test

test-frameworks: ## PyTorch and llama.cpp, bare and behind the fence (3 GB download the first time)
	@scripts/install-deps frameworks
	@scripts/build dev
	@scripts/test-frameworks

test-frameworks-rare: ## by hand: PyTorch 2.9 (CUDA 12), cupy, numba, onnxruntime, jax, faiss (12 GB download)
	@scripts/install-deps rare
	@scripts/build dev
	@scripts/test-frameworks rare

bench: ## what the fence costs, against the bare driver: one table, and build/bench/*.json
	@scripts/install-deps bench
	@scripts/bench

storm: ## KILLS=10000 processes killed at random instants: no byte lost, no wait, no survivor disturbed
	@scripts/install-deps test
	@scripts/storm $(KILLS)

fuzz: ## every fuzzer for SECONDS_EACH=1800
	@scripts/install-deps test
	@scripts/fuzz $(SECONDS_EACH)

tidy: ## clang-tidy over the whole tree
	@scripts/install-deps lint
	@scripts/build tidy

install: ## bin/tessera and lib/tessera/libtessera.so under PREFIX=/usr/local
	@scripts/install-deps build
	@scripts/build release
	@cmake --install build/release --prefix '$(PREFIX)'

clean: ## remove build/ (the cache of downloads stays)
	@rm -rf build
