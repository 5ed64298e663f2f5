# make measure   set up, build, measure this machine, write a report
# make test      set up, check and test everything but what follows
# make test-long what takes longer: the rings in every interleaving of threads, and contenders that compile a library
# make quick     format, lints and unit tests
# make bench     Crossway against hand-written C loops, public tools and the machine's limits, as ratios
# make bench-against  this build against the last one that was measured on such a processor, in turn: what moved?
# make bench-run Redis with and without `crossway run`
# make fidelity  public test suites with and without `crossway run`; writes the table in docs/RUN.md
# make predict   predict what real programs gain from UNIX sockets, and try it; writes the table in docs/METHODOLOGY.md
# make install   install crossway, tipcd, the C library, man pages, completions and a systemd unit below PREFIX
#                WITH_LINX_COMPAT=1 also lets programs link with -llinx
# make uninstall remove them
# make dist      build what is published: the static program, man pages, completions, checksums (dist/)
# make dist-test use the published program where nothing else is installed
# make test-arm64 run the program and its tests on arm64, in an emulated machine, and measure between it and this one;
#                test-armv7 and test-riscv64 do so on these
# make test-kernels the tests of guests, mechanisms and TIPC again on Debian's kernels under QEMU; long if they are emulated
# make deb       build Debian packages around the published program; make deb-test uses them in a new root

PREFIX ?= /usr/local
CARGO  ?= cargo
PLAN   ?= quick
TARGET  = $(or $(CARGO_TARGET_DIR),target)
BUILT  ?= $(TARGET)/release
PROGRAM ?= $(BUILT)/crossway
RUNS   ?= $(PROGRAM)

# Installation directories.
BIN      = $(DESTDIR)$(PREFIX)/bin
MAN      = $(DESTDIR)$(PREFIX)/share/man/man1
LIB      = $(DESTDIR)$(PREFIX)/lib
INCLUDE  = $(DESTDIR)$(PREFIX)/include
EXAMPLES = $(DESTDIR)$(PREFIX)/share/doc/crossway/examples
BASH     = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH      = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH     = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
DATA     = $(DESTDIR)$(PREFIX)/share/crossway
SHARE    = $(DATA)/contenders
UNITS    = $(DESTDIR)$(PREFIX)/lib/systemd/system
LIBRARIES     = tipc linx channel
ABOUT_tipc    = TIPC sockets over AF_TIPC or a tipcd
ABOUT_linx    = LINX endpoints, signals, hunt and attach without a kernel module
ABOUT_channel = Channels by name over the best transport now
abi           = $(shell sed -n 's/^const ABI: u32 = \(.*\);/\1/p' crates/$(1)/capi/build.rs)
PUBLISHED = dist/crossway-$(VERSION)-$$(rustc -vV | sed -n 's/^host: //p')
VERSION  = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

.PHONY: measure build test test-long quick check bench bench-against bench-run fidelity predict loom miri install install-built install-program uninstall dist dist-test test-arm64 test-armv7 test-riscv64 test-kernels deb deb-test clean

measure: build
	$(TARGET)/release/crossway measure $(PLAN)

# The program, and what `crossway run` and `crossway tipc run` load into other programs.
build:
	scripts/setup.sh build
	$(CARGO) build --release --locked -p crossway
	$(CARGO) build --release --locked -p crossway-preload -p crossway-tipc-preload

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

# Checks that need no set-up, no root and no network, to run after each edit.
quick:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --lib --locked

test:
	scripts/setup.sh test
	$(CARGO) fmt --all --check
	CARGO=$(CARGO) scripts/test.sh

# What needs minutes of both CPUs, for parts that rarely change. CI runs it, too.
test-long:
	scripts/setup.sh test
	$(MAKE) loom
	$(CARGO) test --workspace --locked --test contenders -- --ignored

# Model-checks the rings in every interleaving that loom can reach. Uses a separate target folder because the
# configuration affects every crate.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --release -p crossway-ring --test 'loom_*' --target-dir $(TARGET)/loom

# Runs what Miri can run: the ring over memory of the heap, in one thread, and TIPC's decoders. Needs a nightly toolchain:
# rustup toolchain install nightly --component miri,rust-src
miri:
	$(CARGO) +nightly miri test --locked -p crossway-ring --test heap --target-dir $(TARGET)/miri
	$(CARGO) +nightly miri test --locked -p crossway-tipc-proto --lib wire:: --target-dir $(TARGET)/miri
	$(CARGO) +nightly miri test --locked -p crossway-tipc-proto --test golden --target-dir $(TARGET)/miri

bench:
	scripts/setup.sh bench
	$(CARGO) bench --locked -p crossway --bench ratios -- --keep $(CURDIR)/records/bench
	$(CARGO) bench --locked -p crossway-channel --bench overhead --bench choice --bench switches
	$(CARGO) bench --locked -p crossway-linx --bench node
	$(CARGO) bench --locked -p crossway-mech --bench linx
	$(CARGO) bench --locked -p crossway-tipc-proto --bench names
	$(CARGO) bench --locked -p crossway-tipc-node --bench goodput
	$(CARGO) bench --locked -p crossway-tipc-node --bench failover

# AGAINST has more options, such as --commit COMMIT (see scripts/bench-against.py --help).
bench-against:
	scripts/setup.sh build
	python3 scripts/bench-against.py $(AGAINST)

# Redis over TCP, over UNIX stream pairs in its place, and over its own UNIX socket, in interleaved rounds.
bench-run: build
	scripts/setup.sh bench
	python3 scripts/bench-run.py

# Takes about an hour. FIDELITY has more options, such as --suites test_socket,tornado (see scripts/fidelity/judge.py --help).
fidelity:
	$(CARGO) build --locked -p crossway -p crossway-preload
	python3 -m venv $(TARGET)/fidelity/python
	$(TARGET)/fidelity/python/bin/pip -q install pytest==9.2.0 trio trustme cheroot jaraco.text requests \
		pypytools requests-unixsocket tornado==6.6.1 gevent==26.9.0 'twisted[tls]==26.10.0' pyhamcrest pytest-mock
	python3 scripts/fidelity/judge.py --python $(TARGET)/fidelity/python/bin/python --write docs/RUN.md $(FIDELITY)

# Takes about half an hour. PREDICT has more options, such as --program redis (see scripts/predict/predict.py --help).
predict: build
	scripts/setup.sh predict
	python3 scripts/predict/predict.py --write docs/METHODOLOGY.md $(PREDICT)

install: build
	$(CARGO) build --release --locked -p crossway-tipc-node $(LIBRARIES:%=-p crossway-%-capi)
	$(MAKE) install-built

# Installs what is already built in $(BUILT), for packagers and for the test of the installation.
install-built: $(LIBRARIES:%=install-%) install-program
	install -d $(LIB) $(EXAMPLES) $(UNITS) $(DATA)
	install -m755 $(BUILT)/tipcd $(BIN)
	install -m755 $(BUILT)/libcrossway_preload.so $(BUILT)/libcrossway_tipc_preload.so $(LIB)
	sed 's|@PREFIX@|$(PREFIX)|' crates/tipc/node/tipcd.service.in > $(UNITS)/tipcd.service
	install -Dm644 -t $(EXAMPLES)/go crates/tipc/capi/examples/go/go.mod crates/tipc/capi/examples/go/tipc.go
	install -Dm644 -t $(EXAMPLES)/go/echo crates/tipc/capi/examples/go/echo/main.go
	sed 's|@PREFIX@|$(PREFIX)|' crates/linx/crossway-linx.service.in > $(UNITS)/crossway-linx.service
	install -m644 crates/linx/crossway_linx.lua $(DATA)
	$(if $(WITH_LINX_COMPAT),for kind in so a; do ln -sf libcrossway_linx.$$kind $(LIB)/liblinx.$$kind || exit; done)
	echo '.so man1/crossway-tipcd.1' > $(MAN)/tipcd.1

# Installs the program alone, with man pages, completions and the contenders' sources. RUNS writes the pages: PROGRAM
# itself, or the same program for this machine.
install-program:
	install -d $(BIN) $(MAN) $(BASH) $(ZSH) $(FISH) $(SHARE)
	install -m755 $(PROGRAM) $(BIN)/crossway
	install -m644 contenders/*.toml contenders/*.c contenders/*.py contenders/*.go $(SHARE)
	install -Dm644 -t $(SHARE)/iceoryx2 contenders/iceoryx2/Cargo.toml contenders/iceoryx2/Cargo.lock
	install -Dm644 -t $(SHARE)/iceoryx2/src contenders/iceoryx2/src/main.rs
	$(RUNS) man $(MAN)
	$(RUNS) completions bash > $(BASH)/crossway
	$(RUNS) completions zsh > $(ZSH)/_crossway
	$(RUNS) completions fish > $(FISH)/crossway.fish

# Builds what is published below dist/; TARGETS names other targets than this machine's.
dist:
	scripts/dist.sh $(TARGETS)

# Uses the published program of this machine in a root without libraries, shell and compiler.
dist-test:
	scripts/dist-test.sh $(PUBLISHED)

# Kernels for the guests of these tests.
KERNELS ?= 6.12 6.12-rt
# What runs in guests: their own tests, the mechanisms that this machine's kernel lacks, TIPC's sockets, and both TIPCs together.
IN_GUESTS = -p crossway --test guests -p crossway-conformance --test suite --test sockets --test unmodified \
            -p crossway-tipc-node --test interop

test-kernels:
	scripts/setup.sh test
	$(CARGO) run --locked -p crossway -- guest fetch $(KERNELS)
	set -e; for kernel in $(KERNELS); do \
	    echo "kernel $$kernel"; \
	    CROSSWAY_GUEST_KERNEL=$$kernel $(CARGO) test --locked --no-fail-fast $(IN_GUESTS) -- --test-threads=2; \
	done

# FLAVOUR=arm64-16k boots a kernel with pages of 16 KiB, PARTS=... runs less (see scripts/emulated.sh).
test-arm64 test-armv7 test-riscv64: test-%:
	scripts/setup.sh $*
	scripts/emulated.sh $*

deb:
	scripts/deb.sh $(PUBLISHED)

deb-test:
	scripts/deb-test.sh

# Installs a C library under the name with its ABI version, its header and its pkg-config file.
install-%:
	install -d $(LIB)/pkgconfig $(INCLUDE) $(EXAMPLES)
	install -m755 $(BUILT)/libcrossway_$*.so $(LIB)/libcrossway_$*.so.$(VERSION)
	ln -sf libcrossway_$*.so.$(VERSION) $(LIB)/libcrossway_$*.so.$(call abi,$*)
	ln -sf libcrossway_$*.so.$(call abi,$*) $(LIB)/libcrossway_$*.so
	install -m644 $(BUILT)/libcrossway_$*.a $(LIB)
	install -m644 crates/$*/capi/include/*.h $(INCLUDE)
	install -m644 crates/$*/capi/examples/*.c $(EXAMPLES)
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@LIBRARY@|$*|; s|@ABOUT@|$(ABOUT_$*)|' scripts/library.pc.in > $(LIB)/pkgconfig/crossway-$*.pc

uninstall: $(LIBRARIES:%=uninstall-%)
	rm -f $(BIN)/crossway $(BIN)/tipcd
	rm -f $(LIB)/libcrossway_preload.so $(LIB)/libcrossway_tipc_preload.so
	for kind in so a; do test "$$(readlink $(LIB)/liblinx.$$kind)" != libcrossway_linx.$$kind || rm -f $(LIB)/liblinx.$$kind; done
	rm -f $(UNITS)/tipcd.service $(UNITS)/crossway-linx.service
	rm -f $(MAN)/crossway.1 $(MAN)/crossway-*.1 $(MAN)/tipcd.1
	rm -f $(BASH)/crossway $(ZSH)/_crossway $(FISH)/crossway.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/crossway $(DATA)

uninstall-%:
	rm -f $(LIB)/libcrossway_$*.a $(LIB)/libcrossway_$*.so $(LIB)/libcrossway_$*.so.* $(LIB)/pkgconfig/crossway-$*.pc
	rm -f $(patsubst crates/$*/capi/include/%,$(INCLUDE)/%,$(wildcard crates/$*/capi/include/*.h))

clean:
	$(CARGO) clean
