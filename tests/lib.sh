# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# For the tests: source it after scripts/lib.sh.
#
#	t NAME FUNCTION		run a test; prints "ok N - NAME" or "not ok ..."
#	skip NAME REASON	a test that this machine cannot run
#	run RC COMMAND...	the command's exit code must be RC; stdout, stderr
#				and exit code are in $tmp/out, $tmp/err, $status
#	out_has RE, err_has RE	what it printed
#	why TEXT		the test fails, for this reason
#	finish			last line of the script

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
failed=0

why()
{
	echo "# $*"
	bad=1
}

run()
{
	local want=$1
	shift

	status=0
	"$@" >"$tmp/out" 2>"$tmp/err" || status=$?
	[ "$status" -eq "$want" ] ||
		why "'$*': exit code $status, wanted $want: $(tail -n 3 "$tmp/err")"
}

out_has()
{
	grep -qE -e "$1" "$tmp/out" || why "stdout has no '$1': $(head -n 3 "$tmp/out")"
}

err_has()
{
	grep -qE -e "$1" "$tmp/err" || why "stderr has no '$1': $(tail -n 5 "$tmp/err")"
}

t()
{
	bad=
	n=$((n + 1))
	"$2"
	if [ -z "$bad" ]; then
		echo "ok $n - $1"
	else
		failed=$((failed + 1))
		echo "not ok $n - $1"
	fi
}

skip()
{
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

finish()
{
	[ "$failed" -eq 0 ]
}
