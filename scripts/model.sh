#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: model.sh [--verbose]
#
# Let spin go through every interleaving of scripts/model/pte.pml: what the
# series does to a PTE loses no Accessed or Dirty bit and lets no write
# through, and each way to do a bit less is found out.
#
#   --verbose  show spin's own words, and the trail of each error it must find
#   --help     this text
#
# One line a model: "ok" if spin came to the expected verdict. Exit 0 if all
# did.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

verbose=0
case "${1:-}" in
-h|--help) help_exit ;;
--verbose) verbose=1 ;;
'') ;;
*) usage_error "unknown option '$1'" ;;
esac

"$TOP/scripts/setup-deps.sh"
need spin gcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# verify EXPECT NAME -DOPTION...: EXPECT is "holds" or "error".
verify()
{
	local want=$1 name=$2 got states dir
	shift 2
	dir=$work/$((passed + failed))

	mkdir "$dir"
	cd "$dir"
	cp "$TOP/scripts/model/pte.pml" .
	spin "$@" -a pte.pml >spin.log 2>&1 ||
		{ cat spin.log >&2; die "spin does not take pte.pml $*"; }
	gcc -O2 -w -DSAFETY -DVECTORSZ=2048 -o pan pan.c
	./pan -m200000 >pan.log 2>&1 || true
	# A search that was cut short proves nothing.
	if grep -qE 'max search depth too small|out of memory|Search not completed' pan.log &&
	   ! grep -q 'errors: [1-9]' pan.log; then
		got=incomplete
	elif grep -q 'errors: 0' pan.log; then
		got=holds
	elif grep -q 'errors: [1-9]' pan.log; then
		got=error
	else
		got=broken
	fi
	states=$(awk '/states, stored/ { print $1 + 0 }' pan.log)
	if [ "$verbose" = 1 ]; then
		cat pan.log
		[ "$got" != error ] || spin "$@" -t -p -g pte.pml | tail -n 40
	fi
	if [ "$got" = "$want" ]; then
		passed=$((passed + 1))
		printf 'ok %d - %s: %s (%s states)\n' $((passed + failed)) \
			"$name" "$got" "${states:-?}"
	else
		failed=$((failed + 1))
		printf 'not ok %d - %s: %s, expected %s\n' $((passed + failed)) \
			"$name" "$got" "$want"
		sed 's/^/# /' pan.log
	fi
}

verify holds 'the series'
verify holds 'the series, on CPUs that set Dirty without Write' -DQUIRK
verify holds 'v7.3: clear, then store' -DCLEAR
verify holds 'v7.3, on CPUs that set Dirty without Write' -DCLEAR -DQUIRK
verify error 'no atomic although not young' -DRULE=1
verify error 'no atomic although writable and clean' -DRULE=2
verify error 'no atomic at all' -DRULE=3
verify holds 'no atomic on clean read-only PTEs' -DRULE=4
verify error 'the same, on CPUs that set Dirty without Write' -DRULE=4 -DQUIRK
verify error 'two stores for a PTE, as on 32-bit PAE' -DHALVES

[ "$failed" -eq 0 ]
