# What one types. Each target installs what it needs (and says so), then hands over to one script or one preset.
# Everything that is built goes to build/; everything that is downloaded goes to a cache outside the tree.
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
export JOBS
SECONDS_EACH ?= 1800
KILLS ?= 10000
# What the demo runs, and nothing else of the tree.
DEMO_TARGETS := tessera_program tessera_fence tessera-sim simcuda simnvml sample_greedy

.PHONY: help build demo test bench storm fuzz tidy test-frameworks test-frameworks-rare install uninstall clean

help: ## this list
	@echo "Tessera: one GPU card, several tenants, limits that hold. Targets:"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Start with 'make demo' (no card needed). JOBS=N builds N files at once (here: $(JOBS))."

demo: ## two programs share one card, step by step, each claim checked (a simulated card if there is no real one)
	@scripts/install-deps demo
	@scripts/build dev $(DEMO_TARGETS)
	@tests/demo/demo

build: ## build/dev: the program, the library, the simulated driver, all tests
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

tidy: ## clang-format and clang-tidy over the tree, or over FOLDERS="src/cli src/node" of it
	@scripts/install-deps lint
	@scripts/tidy $(FOLDERS)

install: ## bin/tessera and lib/tessera/libtessera.so under PREFIX=/usr/local
	@scripts/install-deps build
	@scripts/build release
	@scripts/install '$(PREFIX)'

uninstall: ## take the two away again from PREFIX=/usr/local
	@scripts/install --remove '$(PREFIX)'

clean: ## remove build/ (the cache of downloads stays)
	@rm -rf build
