# The commands a newcomer types. Meson does the work; scripts/setup brings what is missing.
.DEFAULT_GOAL := all
BUILD ?= build
PREFIX ?= /usr/local
SETUP ?= scripts/setup
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 1800
KILLS ?= 1000
# Passed on to meson test, for example TEST_ARGS='--suite unit'.
TEST_ARGS ?=
# Suites wait more than they compute: two for each core.
TEST_JOBS ?= $(shell expr 2 '*' $$(nproc))
# What make test-vm runs inside the machine; empty means all suites that need a kernel, and
# VM_COMMAND='scripts/vm/suites user tests/security -k ends' a part of them.
export VM_COMMAND ?=

# Sanitizers stop at the first finding. Leaks are left to make valgrind: LeakSanitizer is slow.
SANITIZE = -Db_sanitize=address,undefined -Db_lundef=false
export ASAN_OPTIONS ?= detect_leaks=0
export UBSAN_OPTIONS ?= print_stacktrace=1

build-asan/build.ninja: SETUP_ARGS = $(SANITIZE) -Dc_args=-fno-sanitize-recover=all
build-fuzz/build.ninja: SETUP_ARGS = $(SANITIZE) -Dfuzz=true \
	-Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all'
build-fuzz/build.ninja: export CC = clang

build-cross/build.ninja: SETUP_ARGS = --cross-file build-cross-root/cross.ini
build-cross/build.ninja: | cross-root

# Locks let two makes share a build folder. On a terminal ninja shows one line of progress.
NINJA = flock $(1) ninja $(if $(MAKE_TERMOUT),,--quiet) -C $(1)

all: setup-build $(BUILD)/build.ninja
	@$(call NINJA,$(BUILD))

%/build.ninja: | setup-build setup-test
	@flock Makefile sh -c "test -e $@ || meson setup $(SETUP_ARGS) $*"

setup-%:
	@$(SETUP) $*

# Without the suites that take long, unless TEST_ARGS chooses. CI runs all.
test: setup-test all
	@rm -f $(BUILD)/meson-logs/testlog*.json
	@meson test -C $(BUILD) --no-rebuild --num-processes $(TEST_JOBS) --print-errorlogs \
		$(or $(TEST_ARGS),--no-suite long --no-suite bench-smoke) </dev/null; \
		scripts/test-report $(BUILD)

test-all:
	@$(MAKE) --no-print-directory test TEST_ARGS='$(or $(TEST_ARGS),--suite carrel)'

# The same beside 8 busy loops and a package manager at work.
test-busy: setup-test all
	@CARREL_PATIENCE=$(or $(CARREL_PATIENCE),4) scripts/test-busy $(MAKE) --no-print-directory test TEST_ARGS='-t 4 $(TEST_ARGS)'

demo: all
	@scripts/web $(BUILD) || [ $$? = 77 ]
	@scripts/mission $(BUILD)
	@scripts/demo $(BUILD)
	@scripts/demo-console $(BUILD)

bench: setup-bench setup-wasm all
	@meson test -C $(BUILD) --no-rebuild --benchmark --verbose

asan:
	@CARREL_PATIENCE=4 $(MAKE) --no-print-directory test BUILD=build-asan TEST_ARGS='-t 4 $(TEST_ARGS)'

valgrind:
	@$(MAKE) --no-print-directory test TEST_ARGS="--suite unit --suite fuzz -t 30 \
		--wrap 'valgrind -q --leak-check=full --error-exitcode=9' $(TEST_ARGS)"

# The other processor, under qemu-user, which has no namespaces: what needs none. The whole of it
# runs in make test-vm-cross.
cross:
	@$(MAKE) --no-print-directory test BUILD=build-cross \
		TEST_ARGS='--suite unit --suite fuzz --suite spec -t 5 $(TEST_ARGS)'

cross-root: setup-cross
	@scripts/cross-setup build-cross-root

fuzz: setup-fuzz build-fuzz/build.ninja
	@$(call NINJA,build-fuzz) fuzzers
	@scripts/fuzz build-fuzz $(FUZZ_SECONDS)

soak: setup-test all
	@scripts/soak $(BUILD) $(SOAK_SECONDS)

# kill -9 of daemon and spawner at random instants, under load: make storm KILLS=100 SEED=7
storm: setup-test all
	@CARREL_BUILD=$(BUILD) tests/crash/storm.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

# Every verb over a disk that is full or fails: make storm-faults MODE=enospc|eio|24M|200M OPERATIONS=5000 SEED=7
storm-faults: setup-test all
	@CARREL_BUILD=$(BUILD) tests/crash/storm_faults.py --mode $(or $(MODE),enospc) \
		--operations $(or $(OPERATIONS),5000) $(if $(SEED),--seed $(SEED))

# Random modules of WebAssembly 3.0 against V8, against themselves suspended, and, with the packages of
# scripts/setup cross, against the other CPU: make diff30 MODULES=200000 SEED=1
diff30: setup-test all
	@CARREL_MODULES=$(or $(MODULES),200000) CARREL_SEED=$(or $(SEED),1000000) \
		meson test -C $(BUILD) --no-rebuild --verbose -t 0 diff30 diff-cross

# The compiler of AssemblyScript from npm (100 MB), which tests/cell/test_capabilities.py uses.
asc:
	@mkdir -p build/asc && cp tests/cell/asc/package*.json build/asc
	@npm ci --prefix build/asc --silent --no-audit --no-fund --ignore-scripts

# WASI programs from npm (60 MB), which tests/cell/test_guests.py runs: make cell-guests GUESTS='python rg'
cell-guests:
	@scripts/cell-guests build-guests $(GUESTS)

# One fault at a time in a copy of the tree: do the tests notice? A part: make mutate MUTANTS='gate store-'
mutate: setup-build setup-test
	@scripts/mutate $(MUTANTS)

# Many machines, a killed spawner, a restarted daemon: make crowd MACHINES=1000
crowd: all
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/crowd $(MACHINES)

test-vm: all
	@scripts/test-vm $(BUILD) "$$VM_COMMAND"

# The same for the other processor: slower, but the only proof that its system calls are right.
test-vm-cross:
	@VM_ARCH=$(if $(filter aarch64,$(shell uname -m)),x86_64,aarch64) \
		$(MAKE) --no-print-directory test-vm BUILD=build-cross

# The suites of machines, gate and security with vms in the place of boxes, which takes hours without KVM. A part:
# make test-kind-vm SUITES='tests/gate/test_attacks.py -k refused'
test-kind-vm: setup-test all
	@scripts/test-kind-vm $(BUILD) $(SUITES)

# The agents of `carrel agent`, downloaded once (about 700 MB), with a scripted model.
test-agents: setup-test setup-screen all
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/agent/real_agents.py tests/agent/real_budget.py tests/agent/real_logins.py
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/agent/many_files.py tests/agent/real_screen.py
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/mcp/real_clients.py

# The recipes of examples/images, built and used: about 3 GB of packages.
test-images: setup-test all
	@CARREL_PATIENCE=$(or $(CARREL_PATIENCE),9) CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/image/ready_images.py

# From the commit that tests/upgrade/from names to this one, while commands run.
test-upgrade: setup-test all
	@scripts/test-upgrade $(BUILD)

# The page of the console, from web/ and npm (100 MB). `make install` and `make deb` take it too.
web: all
	@scripts/web $(BUILD)

# The pages of the console in Debian's chromium. `make test` runs them too where chromium is installed.
test-console: setup-test setup-browser all
	@meson test -C $(BUILD) --no-rebuild --print-errorlogs --suite console $(TEST_ARGS)

# Every page of the console in light, dark and on a phone, in build/screenshots.
screenshots: web
	@CARREL_BUILD=$(abspath $(BUILD)) tests/console/screenshots.py $(BUILD)/screenshots

# The wheel and the npm tarball of the SDKs, reproducible (SOURCE_DATE_EPOCH) and without downloads.
sdk: setup-sdk all
	@sdk/generate --check $(BUILD)
	@sdk/pack $(BUILD)/sdk

# The Debian package for this CPU (or DEB_ARCH) in build/deb; lintian must find nothing. With the page of the console where npm
# reaches a registry, or where an earlier `make web` did; otherwise scripts/deb says that it is absent.
deb: setup-build setup-deb $(if $(DEB_ARCH),$(if $(filter $(DEB_ARCH),$(shell dpkg --print-architecture)),,cross-root))
	@mkdir -p $(BUILD)
	@scripts/web $(BUILD) || [ $$? = 77 ]
	@DEB_ARCH=$(DEB_ARCH) scripts/deb $(BUILD)/deb

# The same twice, which must give the same bytes; then installed, upgraded under live machines and removed in a
# Debian of its own.
test-deb: setup-test deb
	@scripts/deb $(BUILD)/deb-again >/dev/null
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/debian/packages.py

# A container image of the daemon with that package, in build/container, from packages of Debian's mirror.
container: setup-container deb
	@scripts/container $(BUILD)/container "$$(ls -t $(BUILD)/deb/carrel_*_$$(dpkg --print-architecture).deb | head -n 1)"

# The same twice, which must give the same bytes; then the daemon in it, as a container runtime starts it.
test-container: setup-test container
	@scripts/container $(BUILD)/container-again "$$(ls -t $(BUILD)/deb/carrel_*_$$(dpkg --print-architecture).deb | head -n 1)" >/dev/null
	@CARREL_BUILD=$(abspath $(BUILD)) scripts/run-pytest tests/debian/container.py

# The release tarball of the last commit.
dist:
	@scripts/dist $(BUILD)

lint: setup-build setup-test setup-lint
	@scripts/lint

format: setup-lint
	@git ls-files '*.[ch]' | xargs -r clang-format -i

install: all
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX))
	@$(call NINJA,$(BUILD))
	@meson install -C $(BUILD) --no-rebuild --quiet $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

uninstall: setup-build $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX))
	@scripts/uninstall $(BUILD) $(if $(DESTDIR),$(abspath $(DESTDIR)))

clean:
	@rm -rf build build-*

.PHONY: all test test-all test-busy demo diff30 asc cell-guests bench asan valgrind cross cross-root fuzz soak storm storm-faults mutate crowd test-vm test-vm-cross test-kind-vm test-agents test-images test-upgrade test-console web screenshots sdk deb test-deb container test-container dist lint format install uninstall clean
