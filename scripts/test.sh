#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: test.sh [NAME...]
#
# Run the tests (all, or those named) one after the other. Each is a program
# that prints "ok N - what" and "not ok N - what" lines; what it prints is
# kept in build/log/test-NAME.log. Ends with the line
# "N passed, N failed, N skipped" and with exit code 1 if anything failed.
#
#   --list  print the names
#   --help  this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# In this order: what is quick and what the others build on comes first.
tests()
{
	cat <<-'EOF'
	static		tests/test-static.sh
	tree		tests/test-tree.sh
	report		tests/test-report.sh
	bench		tests/test-bench.sh
	model		scripts/model.sh
	series		tests/test-series.sh
	docs		tests/test-docs.sh
	submit		tests/test-submit.sh
	selftest	tests/test-selftest.sh
	boot		tests/test-boot.sh
	behaviour	tests/test-behaviour.sh
	selftests	tests/test-selftests.sh
	vm		tests/test-vm.sh
	stress		tests/test-stress.sh
	harness		tests/test-harness.sh
	gate		tests/test-gate.sh
	EOF
}

case "${1:-}" in
-h|--help) help_exit ;;
--list) tests | cut -f1; exit 0 ;;
-*) usage_error "unknown option '$1'" ;;
esac

for name; do
	tests | grep -q "^$name	" || usage_error "there is no test '$name'"
done

"$TOP/scripts/setup-deps.sh"
mkdir -p "$BUILD/log"

passed=0 failed=0 skipped=0
while read -r name prog; do
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
		continue
	fi
	log=$BUILD/log/test-$name.log
	step "test $name ($prog, log: ${log#"$TOP/"})"
	rc=0
	# Show the verdicts as they come, everything else goes to the log.
	"$TOP/$prog" </dev/null 2>"$log.err" | tee "$log" |
		{ grep --line-buffered -E '^(not )?ok [0-9]+' || true; } || rc=$?
	cat "$log.err" >>"$log"
	rm -f "$log.err"
	s=$(grep -cE '^ok [0-9]+.*# SKIP' "$log" || true)
	p=$(grep -cE '^ok [0-9]+' "$log" || true)
	f=$(grep -cE '^not ok [0-9]+' "$log" || true)
	if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then
		f=1
		printf 'not ok 1 - test %s ended with exit code %d\n' "$name" "$rc"
	elif [ "$rc" -eq 0 ] && [ $((p + f)) -eq 0 ]; then
		f=1
		printf 'not ok 1 - test %s tested nothing\n' "$name"
	fi
	[ "$f" -eq 0 ] || { tail -n 40 "$log" | sed 's/^/# /'; }
	passed=$((passed + p - s)) skipped=$((skipped + s)) failed=$((failed + f))
done < <(tests)

step "done"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
