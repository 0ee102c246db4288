#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-vm.sh [--config NAME]
#
# Tests what scripts/vm-run.sh makes of guests that work, fail, crash, hang or
# never start. Needs the kernel: scripts/kernel-build.sh base. One line a test:
# "ok N - name" or "not ok N - name" with the reason above it.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

config=bench
case $#-${1-} in
0-) ;;
1--h|1---help) help_exit ;;
2---config) config=$2 ;;
*) usage_error "only --config NAME" ;;
esac
need gcc pgrep timeout
[ -f "$BUILD/kernels/$config-base/bzImage" ] || {
	echo "1..0 # SKIP no kernel; run scripts/kernel-build.sh base --config $config"
	exit "$EX_SKIP"
}

top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
n=0

# vm WANTED-EXIT-CODE ARG...: runs vm-run.sh; stdout in $tmp/out, stderr in $tmp/err.
vm()
{
	local want=$1 rc=0
	shift

	# The outer time-out only catches a vm-run.sh that has lost its own.
	timeout 400 "$TOP/scripts/vm-run.sh" base --config "$config" --log "$tmp/log" --timeout 300 "$@" \
		>"$tmp/out" 2>"$tmp/err" || rc=$?
	[ "$rc" -eq "$want" ] || why "exit code $rc, wanted $want"
}

why() { echo "# $*"; bad=1; }
out_is() { [ "$(cat "$tmp/out")" = "$1" ] || why "stdout: $(head -c 300 "$tmp/out")"; }
err_has() { grep -qE -e "$1" "$tmp/err" || why "stderr has no '$1': $(head -n 3 "$tmp/err")"; }
no_qemu()
{
	local i

	for ((i = 0; i < 30; i++)); do
		pgrep -f "qemu-system.*$tmp/log" >/dev/null || return 0
		sleep 0.1
	done
	why "QEMU still runs"
	pgrep -f "qemu-system.*$tmp/log" | xargs -r kill -KILL
}

one()
{
	local n=$1 name=$2 test=$3

	tmp=$top/$n
	bad=
	mkdir "$tmp"
	"$test"
	if [ -n "$bad" ]; then
		sed 's/^/#   /' "$tmp/err" | tail -n 12
		echo "not ok $n - $name"
	else
		echo "ok $n - $name"
	fi
}

# t NAME FUNCTION: in the background, as many at a time as there are CPUs.
t()
{
	n=$((n + 1))
	[ "$n" -le "$(nproc)" ] || wait -n || :
	one "$n" "$@" >"$top/$n.result" &
}

status_and_output()
{
	vm 7 -- sh -c 'echo out; echo err >&2; echo "vm-run: end, status 0, tainted 0"; exit 7'
	out_is $'out\nerr\nvm-run: end, status 0, tainted 0'
	[ ! -s "$tmp/err" ] || why "stderr is not empty"
	grep -q 'Linux version' "$tmp/log" || why "no kernel messages in the log"
}

ktap()
{
	{
		printf 'TAP version 13\n1..2\n# \t spaces  and "quotes"\nok 1 a\n'
		printf '    KTAP version 1\n    not ok 1 b # SKIP \\ \x01\x04\xff\n'
		for ((i = 0; i < 4000; i++)); do echo "# line $i of a long report"; done
		printf 'not ok 2 no newline at the end'
	} >"$tmp/ktap"
	vm 0 --file "$tmp/ktap" -- cat ktap
	cmp "$tmp/ktap" "$tmp/out" || why "the output was changed"
}

arguments()
{
	# shellcheck disable=SC2016
	vm 0 --smp 3 --numa 2 --file "$0:/some/where/a b" -- \
		sh -c 'printf "<%s>" "$@"; ls -d "/some/where/a b"; nproc; cd /sys/devices/system/node; echo node[0-9]' \
		'' "it's" '$HOME "x"' '' $'a\nb' '*'
	out_is $'<it\'s><$HOME "x"><><a\nb><*>/some/where/a b\n3\nnode0 node1'
}

dynamic_program()
{
	vm 0 --file /bin/true:/work/host-true -- host-true
}

no_command()
{
	vm 127 -- no-such-program
	grep -q 'no-such-program: not found' "$tmp/out" || why "stdout: $(cat "$tmp/out")"
}

crash()
{
	vm 121 -- sh -c 'echo before; echo c >/proc/sysrq-trigger; sleep 100'
	out_is before
	err_has 'kernel panic: Kernel panic - not syncing: sysrq triggered crash'
	err_has 'Call Trace'
}

lkdtm() { vm "$@" sh -c "echo $kind >/sys/kernel/debug/provoke-crash/DIRECT; echo alive"; }

warn_splat()
{
	kind=WARNING
	lkdtm 122 --
	out_is alive
	err_has 'the kernel complained'
	err_has 'WARNING: .*lkdtm'
}

splat_allowed()
{
	kind=WARNING
	lkdtm 0 --allow-splat --
	out_is alive
}

oops()
{
	vm 122 -- sh -c '(echo EXCEPTION >/sys/kernel/debug/provoke-crash/DIRECT); echo alive'
	out_is $'Killed\nalive'
	err_has 'BUG: kernel NULL pointer dereference'
}

hang()
{
	local start=$SECONDS

	vm 124 --timeout 20 -- sh -c 'echo before; sleep 1000'
	out_is before
	err_has 'COMMAND did not end in 20 s, last output [0-9]+ s ago'
	[ $((SECONDS - start)) -lt 40 ] || why "20 s took $((SECONDS - start)) s"
	no_qemu
}

boot_hang()
{
	printf '#!/bin/busybox sh\nwhile :; do :; done\n' >"$tmp/hang"
	chmod +x "$tmp/hang"
	vm 124 --timeout 8 --file "$tmp/hang" --append rdinit=/work/hang -- true
	err_has 'boot hangs, no init after 8 s'
	no_qemu
}

no_init()
{
	vm 123 --append rdinit=/none -- true
	err_has 'no working init'
}

# A QEMU that shows an oops the first $1 times that it is called.
stray_breakpoint()
{
	local n=$1 want=$2
	shift 2

	mkdir "$tmp/bin"
	cat >"$tmp/bin/qemu-system-x86_64" <<-END
	#!/usr/bin/env bash
	echo >>"$tmp/calls"
	[ "\$(wc -l <"$tmp/calls")" -le $n ] || exec $(command -v qemu-system-x86_64) "\$@"
	{
		echo '[    0.637079] Oops: int3: 0000 [#1] SMP'
		echo '[    0.639685] Kernel panic - not syncing: Fatal exception in interrupt'
	} >"$tmp/log"
	END
	chmod +x "$tmp/bin/qemu-system-x86_64"
	PATH=$tmp/bin:$PATH vm "$want" "$@" -- sh -c 'echo "a b"; exit 7'
}

booted_again()
{
	stray_breakpoint 1 7
	out_is 'a b'
	err_has 'booting again'
}

booted_again_once()
{
	stray_breakpoint 2 121
	err_has 'kernel panic'
	[ "$(wc -l <"$tmp/calls")" -eq 2 ] || why "QEMU was called $(wc -l <"$tmp/calls") times"
}

no_thread_no_excuse()
{
	stray_breakpoint 1 121 --smp 1
	err_has 'kernel panic'
}

early_stop()
{
	vm 125 -- reboot -f
	err_has 'stopped before COMMAND ended'
}

bad_kernel()
{
	echo 'not a kernel' >"$tmp/bzImage"
	rc=0
	"$TOP/scripts/vm-run.sh" "$tmp/bzImage" --log "$tmp/log" --timeout 60 -- true 2>"$tmp/err" || rc=$?
	[ "$rc" -eq 125 ] || why "exit code $rc, wanted 125"
	err_has 'QEMU failed'
}

bad_input()
{
	local args

	rc=0
	"$TOP/scripts/vm-run.sh" no-such-kernel -- true 2>"$tmp/err" || rc=$?
	[ "$rc" -eq 125 ] || why "exit code $rc, wanted 125"
	err_has 'run scripts/kernel-build.sh no-such-kernel'
	vm 125 --file /no/such/file -- true
	err_has 'there is no /no/such/file'
	for args in '--mem x' '--smp 0' '--timeout' '--no-such-option' 'extra' '--icount --smp 2'; do
		# shellcheck disable=SC2086
		vm 2 $args -- true
	done
	vm 2
	err_has 'COMMAND is missing'
}

# Job control, so that the job has a process group and is sent ^C like a
# terminal's foreground job.
stopped_by()
{
	local want=$1 target=$2 sig=$3 job rc=0

	set -m
	"$TOP/scripts/vm-run.sh" base --config "$config" --log "$tmp/log" -- \
		sh -c 'echo up; sleep 1000' >"$tmp/out" 2>"$tmp/err" &
	job=$!
	set +m
	timeout 60 sh -c "until grep -q up '$tmp/out'; do sleep 0.1; done" || why "did not boot"
	kill "-$sig" -- "$target$job"
	wait "$job" 2>/dev/null || rc=$?
	[ "$rc" -eq "$want" ] || why "exit code $rc, wanted $want"
	no_qemu
}
ctrl_c() { stopped_by 130 - INT; err_has interrupted; }
terminated() { stopped_by 143 '' TERM; err_has terminated; }
killed() { stopped_by 137 '' KILL; }

reader_gone()
{
	"$TOP/scripts/vm-run.sh" base --config "$config" --log "$tmp/log" -- yes 2>"$tmp/err" |
		head -n 1 >"$tmp/out" || :
	out_is y
	err_has 'nobody reads the output'
	no_qemu
}

# One guest instruction is one ns: an unrolled loop of a known number of
# instructions takes that many ns, in each run.
icount()
{
	cat >"$tmp/count.c" <<-'EOF'
	#include <stdio.h>
	#include <stdlib.h>
	#include <time.h>
	#include <sys/mman.h>

	static long now(void)
	{
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC, &t);
		return t.tv_sec * 1000000000L + t.tv_nsec;
	}

	int main(void)
	{
		char *p = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		long t, i;

		for (int round = 0; round < 5; round++) {
			t = now();
			mprotect(p, 1 << 24, PROT_READ);
			mprotect(p, 1 << 24, PROT_READ | PROT_WRITE);
			printf("mprotect %ld at %ld\n", now() - t, t);
		}
		for (int round = 0; round < 5; round++) {
			t = now();
			for (i = 100000; i; i--)
				__asm__ volatile(".rept 98\n\tnop\n\t.endr");
			printf("loop %ld\n", now() - t);
		}
		return p == MAP_FAILED;
	}
	EOF
	gcc -O2 -static -o "$tmp/count" "$tmp/count.c"
	vm 0 --icount --file "$tmp/count" -- sh -c './count; cat /sys/devices/system/clocksource/*/current_clocksource /proc/interrupts'
	cp "$tmp/out" "$tmp/first"
	vm 0 --icount --file "$tmp/count" -- sh -c './count; cat /sys/devices/system/clocksource/*/current_clocksource /proc/interrupts'
	cmp "$tmp/first" "$tmp/out" || why "two runs differ"
	grep -q '^mprotect [1-9]' "$tmp/out" || why "nothing was timed"
	grep -qx tsc "$tmp/out" || why "the clock is not the TSC"
	# 98 nops and the two instructions of the loop; a timer tick may fall in
	awk '/^loop/ && ($2 < 9999900 || $2 > 10100000) { exit 1 }' "$tmp/out" ||
		why "10000000 instructions took $(grep loop "$tmp/out" | tr '\n' ' ')ns"
}

t 'command hangs' hang
t 'exit status and output of the command' status_and_output
t 'boot hangs' boot_hang
t 'KTAP is passed through unchanged' ktap
t 'arguments, CPUs, nodes and files reach the guest' arguments
t "a program's shared libraries come along" dynamic_program
t 'command not found' no_command
t 'kernel panic' crash
t 'WARN' warn_splat
t 'WARN with --allow-splat' splat_allowed
t 'oops in a process' oops
t 'missing init' no_init
t 'a stray breakpoint of QEMU: booted again' booted_again
t 'but once only' booted_again_once
t 'and not with one CPU' no_thread_no_excuse
t 'guest stops by itself' early_stop
t 'QEMU fails' bad_kernel
t 'bad command lines' bad_input
t '^C leaves no QEMU' ctrl_c
t 'SIGTERM leaves no QEMU' terminated
t 'SIGKILL leaves no QEMU' killed
t 'reader of the output goes away' reader_gone
t '--icount counts instructions, twice the same' icount
wait
failed=0
for ((i = 1; i <= n; i++)); do
	cat "$top/$i.result"
	grep -q "^ok $i " "$top/$i.result" || failed=$((failed + 1))
	grep -qE "^(not )?ok $i " "$top/$i.result" || echo "not ok $i - the test itself died"
done
echo "1..$n"
[ "$failed" -eq 0 ] || say "$SELF: $failed of $n failed"
exit $((failed > 0))
