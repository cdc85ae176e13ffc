# The commands of a checkout; CMake does the building (CMakePresets.json). `make help` lists them.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
DEMO_TIME ?= 1m
PYTHON ?= python3

# A build tree keeps the generator it was made with; a new one takes ninja when there is one.
export JOBS
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)

help:
	@echo 'make demo      build, train a tiny model for a minute on this source tree, let it write'
	@echo 'make test      build everything and run the tests; ends with "N passed, N failed"'
	@echo 'make build     build/dormouse and build/libdormouse.so'
	@echo 'make install   into PREFIX (/usr/local), below DESTDIR when set'
	@echo 'make check     layout, include edges, then the fast tests under ASan and UBSan in build-asan'
	@echo 'make results   RUNS="runs/a runs/b" DATA=TEXT: measures exports of these runs anew for docs/results.md'
	@echo 'make bench-peers  times the training step beside the same network in PyTorch (PYTHON, a Python that has it), in turns'
	@echo 'make format    lay out every source with clang-format 14'
	@echo 'make clean     remove build and build-asan (with the runs of make demo)'
	@echo 'variables:     CXX, JOBS ($(JOBS)), PREFIX, DESTDIR, DEMO_TIME ($(DEMO_TIME)), PYTHON ($(PYTHON))'

demo: build
	tools/demo build/dormouse build/demo $(DEMO_TIME)

build:
	@tools/deps --check
	cmake --preset release
	cmake --build build --target dormouse libdormouse --parallel $(JOBS)

test:
	@tools/deps --check test
	cmake --preset release
	cmake --build build --parallel $(JOBS)
	tools/test build

# `make build` first runs tools/deps.
install: build
	DESTDIR='$(DESTDIR)' cmake --install build --prefix '$(PREFIX)'

check:
	@tools/deps --check check
	tools/format --check
	sh tests/edges/edges_test.sh
	sh tests/edges/shape_test.sh
	cmake --preset asan -DDORMOUSE_LONG_TESTS=OFF
	cmake --build build-asan --parallel $(JOBS)
	tools/test build-asan -LE slow

# RUNS: runs that held out the last 100,000 bytes of DATA.
results:
	@test -n '$(RUNS)' -a -n '$(DATA)' || { echo 'make results RUNS="runs/tiny runs/nano" DATA=tinyshakespeare.txt'; exit 2; }
	cmake --preset release
	cmake --build build --target bench_exports --parallel $(JOBS)
	build/bench_exports $(RUNS) --data '$(DATA)' >build/exports.md
	bench/section docs/results.md exports <build/exports.md

bench-peers: build
	bench/peers/run --dormouse build/dormouse --python '$(PYTHON)'

format:
	tools/format

clean:
	cmake -E rm -rf build build-asan

.PHONY: help demo build test install check results bench-peers format clean
