# SPDX-License-Identifier: GPL-2.0-only
#
# The front door: "make help" says what there is.

.PHONY: help
help:
	@printf '%s\n' \
	'make bench        before/after table: guest instructions a page (QEMU)' \
	'make test         the tests; ends with "N passed, N failed, N skipped"' \
	'make bench-host   the same benchmark on the running kernel, in ns' \
	'make harness      ns a page of change_protection() run in user space' \
	'                  PEERS=1: with v6.12, v6.17, v6.18 and v7.1' \
	'make difftest     base and series against each other; N= cases' \
	'make difftest-each  the same for each patch, 100000000 cases' \
	'make mutants      wrong versions of the series, each must be caught' \
	'make stress       writes while the protection changes: nothing is lost' \
	'make selftests    the selftests of mm/, base against series' \
	'make debug-boot   the series on KASAN, lockdep, UBSAN... kernels' \
	'make bigheap      stress-ng bigheap, base against series' \
	'make boot-patches base and every patch: boots, passes the selftest' \
	'make boot-distro  base and series, configured as distributions do' \
	'make model        spin: no Accessed or Dirty bit is lost' \
	'make report       rewrite the generated tables from bench-results/' \
	'scripts/submit.sh  from here to linux-mm; see MAINTAINERS-notes' \
	'make setup        install what is missing (Debian packages)' \
	'make tree         build/linux: the branches base and series' \
	'make clean        remove build/'

.PHONY: setup
setup:
	@scripts/setup-deps.sh

.PHONY: tree
tree: setup
	@scripts/kernel-tree.sh

.PHONY: bench
bench: tree
	@scripts/bench.sh

.PHONY: bench-host
bench-host: tree
	@scripts/bench-host.sh

.PHONY: harness
harness: tree
	@scripts/harness/harness.sh run $(if $(PEERS),--peers)

.PHONY: difftest
difftest: tree
	@scripts/harness/harness.sh difftest $(if $(N),--cases $(N))

.PHONY: difftest-each
difftest-each: tree
	@scripts/harness/harness.sh difftest-each $(if $(N),--cases $(N))

.PHONY: mutants
mutants: tree
	@scripts/harness/harness.sh mutants

.PHONY: stress
stress: tree
	@scripts/stress.sh

.PHONY: selftests
selftests: tree
	@scripts/selftests.sh

.PHONY: debug-boot
debug-boot: tree
	@scripts/debug-boot.sh

.PHONY: bigheap
bigheap: tree
	@scripts/bigheap.sh

.PHONY: boot-patches
boot-patches: tree
	@tests/test-boot.sh --patches

.PHONY: boot-distro
boot-distro: tree
	@tests/test-boot.sh --distro

.PHONY: model
model: setup
	@scripts/model.sh

.PHONY: report
report: tree
	@scripts/report.py update

.PHONY: test
test:
	@scripts/test.sh

.PHONY: clean
clean:
	rm -rf build
