# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# Shared by every script here: source it, do not run it.
#
#	. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#
# Exit codes: 0 done, 1 the work failed, 2 the command line is wrong, 4 it
# cannot be done here (as in kselftest).

set -euo pipefail

# Sorting, number formats and messages must not depend on the user.
export LC_ALL=C

# Git hooks and callers set these; they would point our git at the wrong tree.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

# Nor are we a sub-make of "make test": the kernel's selftests take OUTPUT from
# above if MAKELEVEL is not 0.
unset MAKEFLAGS MFLAGS MAKELEVEL

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# BUILD= moves everything generated (trees, objects, images) elsewhere.
BUILD=${BUILD:-$TOP/build}
LINUX=$BUILD/linux
SELF=${0##*/}
export TOP BUILD LINUX

# shellcheck disable=SC2034 # used by those who source this
readonly EX_FAIL=1 EX_USAGE=2 EX_SKIP=4

# set -e ends a script without a word; say where it was.
trap 'printf "%s: stopped at line %d, exit code %d: %s\n" "${0##*/}" "$LINENO" "$?" "$BASH_COMMAND" >&2' ERR

say()
{
	printf '%s\n' "$*" >&2
}

# step TEXT: what runs now, with the seconds since the script started.
step()
{
	printf '[%4ds] %s\n' "$SECONDS" "$*" >&2
}

warn()
{
	printf '%s: warning: %s\n' "$SELF" "$*" >&2
}

# die TEXT: what is wrong and what to do about it.
die()
{
	printf '%s: error: %s\n' "$SELF" "$*" >&2
	exit $EX_FAIL
}

usage_error()
{
	printf '%s: error: %s (see %s --help)\n' "$SELF" "$*" "$SELF" >&2
	exit $EX_USAGE
}

# help_exit: print the comment block below the shebang and SPDX lines, exit 0.
help_exit()
{
	awk 'NR <= 2 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"
	exit 0
}

# need CMD...: every command must be there.
need()
{
	local c missing=()

	for c in "$@"; do
		command -v "$c" >/dev/null || missing+=("$c")
	done
	[ ${#missing[@]} -eq 0 ] ||
		die "missing: ${missing[*]}; run scripts/setup-deps.sh"
}

# need_space DIR MIB: a full disk is told before the work, not in its middle.
need_space()
{
	local have

	mkdir -p "$1"
	have=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
	[ "$have" -ge "$2" ] ||
		die "$1 has $have MiB free, $2 MiB are needed; free some, or set BUILD= to another disk"
}

# lock NAME: one run at a time, waits for the other one; gone with the process.
lock()
{
	mkdir -p "$BUILD"
	exec 9>"$BUILD/.lock-$1"
	if ! flock -n 9; then
		say "$SELF: waiting for another run that holds $BUILD/.lock-$1"
		flock 9
	fi
}

# run_log LOG CMD...: the output goes to LOG; its end is shown on failure.
run_log()
{
	local log=$1 rc=0
	shift

	mkdir -p "$(dirname "$log")"
	"$@" >"$log" 2>&1 || rc=$?
	if [ "$rc" -ne 0 ]; then
		tail -n 25 "$log" >&2
		say "$SELF: '$*' failed with exit code $rc; all of its output: $log"
	fi
	return "$rc"
}

# derive COMMIT NAME CMD...: COMMIT of build/linux with what CMD does to the
# index, as a commit that no branch knows. The same input gives the same commit.
derive()
{
	local commit=$1 name=$2 tree
	local -x GIT_INDEX_FILE=$BUILD/index.$BASHPID
	local -x GIT_AUTHOR_NAME=derived GIT_AUTHOR_EMAIL=derived@localhost
	local -x GIT_COMMITTER_NAME=derived GIT_COMMITTER_EMAIL=derived@localhost
	local -x GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
	local -x GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
	shift 2

	git -C "$LINUX" read-tree "$commit"
	if ! "$@"; then
		rm -f "$GIT_INDEX_FILE"
		return 1
	fi
	tree=$(git -C "$LINUX" write-tree)
	rm -f "$GIT_INDEX_FILE"
	git -C "$LINUX" commit-tree -p "$commit" -m "$name" "$tree"
}
