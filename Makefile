# make measure   set up, build, measure this machine, write a report
# make test      set up, check and test everything
# make bench     Crossway against hand-written C loops, public tools and the machine's limits, as ratios
# make install   install the program, its man pages and shell completions below PREFIX

PREFIX ?= /usr/local
CARGO  ?= cargo
PLAN   ?= quick

export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

.PHONY: measure build test check bench loom install clean

measure: build
	target/release/crossway measure $(PLAN)

build:
	scripts/setup.sh build
	$(CARGO) build --release --locked -p crossway

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

test:
	scripts/setup.sh test
	$(MAKE) check
	$(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) loom

# The rings under every interleaving the model checker can reach, in a target folder of its own because the
# configuration changes every crate.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --release -p crossway-mech --test 'loom_*' --target-dir target/loom

bench:
	scripts/setup.sh bench
	$(CARGO) bench --locked -p crossway --bench ratios
	$(CARGO) bench --locked -p crossway-tipc-proto --bench names
	$(CARGO) bench --locked -p crossway-tipc-node --bench goodput

install: build
	install -Dm755 target/release/crossway $(DESTDIR)$(PREFIX)/bin/crossway
	target/release/crossway man $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/crossway completions bash > /dev/null
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	target/release/crossway completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crossway

clean:
	$(CARGO) clean
