# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# For the tests of the measuring scripts: source it after scripts/lib.sh.
#
#	t NAME COMMAND...	a test: passes if COMMAND, run with set -e, does
#	fails TEXT COMMAND...	COMMAND exits with 1 or 2 and says TEXT
#	skip NAME REASON	a test that this machine cannot run
#	finish			last line of the script

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap - ERR
nr=0 passed=0 failed=0 skipped=0

t()
{
	local name=$1 rc
	shift

	nr=$((nr + 1))
	# Not in a condition, that would turn set -e off inside.
	set +e
	( set -e; "$@" ) >"$tmp/log" 2>&1
	rc=$?
	set -e
	if [ "$rc" -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok $nr - $name"
	else
		failed=$((failed + 1))
		echo "not ok $nr - $name"
		sed 's/^/# /' "$tmp/log" | tail -n 30
	fi
}

fails()
{
	local text=$1 rc=0
	shift

	"$@" >"$tmp/out" 2>&1 || rc=$?
	cat "$tmp/out"
	[[ $rc =~ ^(1|2)$ ]] || { echo "exit code $rc"; return 1; }
	grep -qF -- "$text" "$tmp/out" || { echo "does not say: $text"; return 1; }
	! grep -q Traceback "$tmp/out"
}

skip()
{
	nr=$((nr + 1)) skipped=$((skipped + 1))
	echo "ok $nr - $1 # SKIP $2"
}

finish()
{
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] || exit 1
	exit 0
}
