# The front door: a few targets over tools/setup.sh, Meson and pip. `make help`
# lists them; everything they make lies in BUILD, VENV and data/.

VENV ?= .venv
BUILD ?= build
DATA ?= data/sample
CACHE_FILES ?= data/cache-files
HOST_FILES ?= data/host-files
PREFIX ?= /usr/local
DESTDIR ?=
SETUP_SYSTEM ?= yes
DEMO_ARGS ?=
TEST_ARGS ?=
PYTHON ?= python3
WHEELS ?= x86_64 sdist
VERSION ?=
FIRST_SAMPLES := 900

venv := $(abspath $(VENV))
build := $(abspath $(BUILD))
python := $(venv)/bin/python
package := $(venv)/.headrace-package
sources := $(shell find src include python cli -type f -not -name '*.pyc' 2>/dev/null) \
           $(wildcard meson.build meson_options.txt pyproject.toml)

# meson, ninja and python are those of the environment.
export PATH := $(venv)/bin:$(PATH)
export VENV := $(venv)
export BUILD := $(build)
# Not abspath: the folder's name may hold spaces.
data := $(if $(filter /%,$(DATA)),$(DATA),$(CURDIR)/$(DATA))
export HEADRACE_DATA := $(data)
export DATA := $(data)
export CACHE_FILES := $(if $(filter /%,$(CACHE_FILES)),$(CACHE_FILES),$(CURDIR)/$(CACHE_FILES))
export HOST_FILES := $(if $(filter /%,$(HOST_FILES)),$(HOST_FILES),$(CURDIR)/$(HOST_FILES))

.PHONY: help setup build package samples first-samples demo-steps cache-files host-files music demo test \
        test-long docs install uninstall wheels try-wheels dist deb release clean

help:
	@echo 'make demo         train the same network with the stock PyTorch loader and with Headrace'
	@echo 'make test         the tests of the library, the command and the Python package: minutes'
	@echo 'make test-long    long scripts and bulk repetitions, which make test leaves out'
	@echo 'make install      the library, the headers and the command, to PREFIX ($(PREFIX)); no PyTorch'
	@echo 'make uninstall    takes away what make install put there'
	@echo 'make wheels       wheels and the source distribution, in dist/; WHEELS="x86_64 aarch64 sdist"'
	@echo 'make try-wheels   installs the wheel into empty environments and uses it'
	@echo 'make dist         the archive of the sources, in dist/'
	@echo 'make deb          Debian packages of the library and the command, in dist/'
	@echo 'make release      VERSION=1.2.3: commits the version, builds all of these, tests and tags'
	@echo 'make bench-NAME   one benchmark: bench-decode, bench-loader, bench-pack, bench-cache,'
	@echo '                  bench-stalls, bench-scripts, bench-share, bench-hosts, bench-memory,'
	@echo '                  bench-exact, bench-locks, bench-augment, bench-detection, bench-audio,'
	@echo '                  bench-pipelines, bench-disk, bench-replay, bench-object,'
	@echo '                  bench-metrics'
	@echo 'make soak-NAME    one long run with faults: soak-cache, soak-share, soak-hosts,'
	@echo '                  soak-object'
	@echo 'make docs         docs/ as a site, in BUILD/site; links are checked'
	@echo 'make clean        remove what was built (not VENV, not data/)'
	@echo
	@echo 'Variables: VENV=$(VENV) BUILD=$(BUILD) DATA=$(DATA) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'DATA=/path/to/imagefolder trains on your images. SETUP_SYSTEM=no leaves the system alone.'
	@echo "DEMO_ARGS='--workers 4 --samples 8000' sets what the demonstration chooses by itself."

setup:
	@if [ '$(SETUP_SYSTEM)' = yes ]; then tools/setup.sh; else tools/setup.sh --python; fi

build: setup
	@test -e $(build)/build.ninja || meson setup $(build) --prefix '$(PREFIX)'
	@ninja -C $(build)

# pip builds the extension in a folder of its own, which it keeps between runs. It lies beside BUILD,
# so that the compiler's arguments are the same and ccache, where it is there, compiles files once.
$(package): $(sources)
	@echo 'package: compiling it and installing it into $(VENV)'
	@$(python) -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps \
	    --force-reinstall --config-settings=build-dir=$(build)-python .
	@touch $@

package: setup
	@$(MAKE) -s --no-print-directory $(package)

# 4,200 photographs, which benchmarks use.
samples: setup
	@if [ '$(DATA)' = '$(CURDIR)/data/sample' ]; then $(python) tools/make_samples.py; \
	elif [ ! -d '$(DATA)' ]; then echo 'DATA=$(DATA) is not a folder' >&2; exit 2; fi

# The first of them, which are enough for the demonstration and the tests.
first-samples: setup
	@if [ '$(DATA)' = '$(CURDIR)/data/sample' ]; then \
	    $(python) tools/make_samples.py --count $(FIRST_SAMPLES); \
	elif [ ! -d '$(DATA)' ]; then echo 'DATA=$(DATA) is not a folder' >&2; exit 2; fi

demo-steps:
	@PACKAGE='$(package)' DEMO_SAMPLES=$(FIRST_SAMPLES) SAMPLES='$(CURDIR)/data/sample' \
	    SETUP_SYSTEM=$(SETUP_SYSTEM) tools/demo_steps.sh

demo: demo-steps package first-samples
	@$(python) tools/demo.py --data '$(DATA)' --command $(venv)/bin/headrace \
	    --json $(build)/demo.json $(DEMO_ARGS)

test: build package first-samples
	@$(python) tools/run_tests.py --build $(build) $(TEST_ARGS)

test-long: build package first-samples
	@$(python) tools/run_tests.py --build $(build) --long

# 4 GiB, in CACHE_FILES.
cache-files: samples
	@$(python) tools/make_cache_files.py --data '$(DATA)'

# 0.5 GB, in HOST_FILES.
host-files: samples
	@$(python) tools/make_host_files.py --data '$(DATA)'

# 24 clips in four formats, 0.2 GB, in data/music.
music: setup
	@command -v ffmpeg >/dev/null || bench/setup.sh
	@$(python) tools/make_music.py

# As root: memory and disk are limited with control groups.
bench-cache bench-stalls: cache-files
bench-hosts: host-files
bench-audio: music

# The peers that a benchmark compares with are installed once, where they can be.
bench-%: build package samples
	@bench/setup.sh
	@bench/run $*

# Long runs that kill what they test; the result goes to docs/results/.
# The loaders of this one are the package's.
soak-object: package

soak-%: build samples
	@$(python) tests/soak/$*.py --build $(build) --data '$(data)' --out docs/results/soak-$*.json

# MkDocs gets an environment of its own.
docs:
	@tools/docs.sh

# For programs in C and the command: neither Python packages nor PyTorch are needed.
install:
	@BUILD='$(build)-install' VENV='$(venv)-install' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' tools/install.sh

uninstall:
	@BUILD='$(build)-install' tools/install.sh --uninstall

# With compilers and libraries of their own: no other target is needed.
wheels:
	@PYTHON='$(PYTHON)' tools/wheels/make.sh $(WHEELS)

try-wheels:
	@PYTHON='$(PYTHON)' tools/wheels/try.sh

dist:
	@tools/dist.sh

deb:
	@tools/dist.sh --deb

release: build
	@$(python) tools/release.py '$(VERSION)'

clean:
	rm -rf $(build) $(build)-python $(build)-install $(venv)-install $(venv)-docs $(package)
