#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# vm-run.sh VARIANT [OPTION]... -- COMMAND [ARG]...
#
# Boots a kernel in QEMU and runs COMMAND in the guest. Stdout is the output
# of COMMAND (stdout and stderr) as it comes, and nothing else; kernel messages
# go to the console log.
#
# VARIANT           as given to kernel-build.sh, which must have built it;
#                   or a path (with a slash) to a bzImage
# --config NAME     the kernel's config (default: bench)
# --file HOST[:GUEST]
#                   copies a file or a folder into the guest, to /work/ or to
#                   GUEST; a program's shared libraries come along. /work is
#                   COMMAND's working directory and the first in its PATH;
#                   the rest is busybox. May be given many times.
# --icount          counts instructions: one CPU of a fixed model, the clock
#                   runs at one ns per guest instruction, no randomness; two
#                   runs give the same figures
# --mem MIB         guest memory (default: 1024)
# --smp N           CPUs (default: 2, with --icount 1)
# --numa N          NUMA nodes, memory and CPUs spread over them (default: 1)
# --append ARGS     more kernel parameters
# --timeout S       seconds of host time (default: 600)
# --log FILE        console log (default: build/log/vm-NAME-VARIANT.log)
# --allow-splat     WARN, BUG, lockdep and KASAN reports are no failure
#
# Always TCG, never KVM, so that every machine shows the same. Without --icount
# the CPU has all that TCG can do (-cpu max); times mean nothing there.
#
# Exit code: COMMAND's, if the guest ran it to its end; or, with a message and
# the last console lines on stderr,
#    2  bad command line
#  121  kernel panic
#  122  the kernel complained (oops, BUG, WARN, KASAN, lockdep, taint)
#  123  the guest has no working init
#  124  time-out; the message says if the guest ever got to COMMAND
#  125  no kernel or a bad file, QEMU failed, or the guest stopped by itself

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly EX_PANIC=121 EX_SPLAT=122 EX_NOINIT=123 EX_TIMEOUT=124 EX_MACHINERY=125

all_args=("$@")
variant=
config=bench
files=()
icount=
mem=1024
smp=
numa=1
append=
timeout=600
log=
allow_splat=
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--icount) icount=1; shift ;;
	--allow-splat) allow_splat=1; shift ;;
	--) shift; break ;;
	--*)
		[ $# -ge 2 ] || usage_error "$1 needs a value, or is unknown"
		case $1 in
		--config) config=$2 ;;
		--file) files+=("$2") ;;
		--mem) mem=$2 ;;
		--smp) smp=$2 ;;
		--numa) numa=$2 ;;
		--append) append=$2 ;;
		--timeout) timeout=$2 ;;
		--log) log=$2 ;;
		*) usage_error "unknown option $1" ;;
		esac
		shift 2 ;;
	-*) usage_error "unknown option $1" ;;
	*)
		[ -z "$variant" ] || usage_error "'$1': COMMAND comes after --"
		variant=$1
		shift ;;
	esac
done
[ -n "$variant" ] || usage_error "VARIANT is missing"
[ $# -gt 0 ] || usage_error "COMMAND is missing"
: "${smp:=$((2 - ${icount:-0}))}"
for opt in mem smp numa timeout; do
	[[ ${!opt} =~ ^[1-9][0-9]{0,6}$ ]] ||
		usage_error "--$opt wants a number from 1, not '${!opt}'"
done
[ "$mem" -ge 128 ] || usage_error "--mem: the guest needs 128 MiB at least"
[ -z "$icount" ] || [ "$smp" -eq 1 ] ||
	usage_error "--icount counts on one CPU, not on $smp"

need qemu-system-x86_64 cpio setpriv
busybox=$(command -v busybox) || die "missing: busybox; run scripts/setup-deps.sh"

# The same in kernel-build.sh
name=$config-${variant//[^A-Za-z0-9._-]/_}
kernel=$BUILD/kernels/$name/bzImage
[[ $variant != */* || ! -f $variant ]] || kernel=$variant
: "${log:=$BUILD/log/vm-$name.log}"

tmp=
qemu=
tail=
# shellcheck disable=SC2317 # called by the trap
cleanup()
{
	[ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || :
	[ -z "$tail" ] || kill "$tail" 2>/dev/null || :
	[ -z "$tmp" ] || rm -rf "$tmp"
}
trap cleanup EXIT
trap 'say "$SELF: line $LINENO failed: $BASH_COMMAND"; exit $EX_MACHINERY' ERR
trap 'say "$SELF: interrupted, guest killed"; exit 130' INT
trap 'say "$SELF: terminated, guest killed"; exit 143' TERM HUP

# fail CODE TEXT: the verdict, and the console lines that bear it out.
fail()
{
	local code=$1
	shift

	say "$SELF: $name: $*"
	if [ -s "$log" ]; then
		if [ "$code" -eq $EX_SPLAT ]; then
			say "--- console, from the first report on:"
			grep -aE -A 30 -e "$splat" "$log" | head -n 40 | tr -d '\r' >&2 || :
		else
			say "--- last console lines:"
			tail -n 25 "$log" | tr -d '\r' >&2
		fi
		say "--- whole console: $log"
	fi
	exit "$code"
}

[ -f "$kernel" ] ||
	fail $EX_MACHINERY "no kernel $kernel; run scripts/kernel-build.sh $variant --config $config"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/vm-run.XXXXXX")
mkdir -p "$(dirname "$log")"
: >"$log"

# The initramfs: busybox, init, the files, the command.
root=$tmp/root
mkdir -p "$root"/{bin,work,vm-run,etc,lib,lib64,usr/bin,var/tmp}
cp "$busybox" "$root/bin/busybox"
cp "$TOP/scripts/guest-init" "$root/init"
ln -s /bin/busybox "$root/usr/bin/env"
for file in "${files[@]}"; do
	host=${file%%:*}
	[ -e "$host" ] || fail $EX_MACHINERY "--file: there is no $host"
	guest=/work/$(basename "$host")
	[ "$host" = "$file" ] || guest=${file#*:}
	mkdir -p "$root$(dirname "$guest")"
	if [ -d "$host" ]; then
		mkdir -p "$root$guest"
		cp -a "$host/." "$root$guest/"
	else
		cp -L "$host" "$root$guest"
	fi
done
# What ldd cannot read is static, or no program.
find "$root" -type f -perm -u+x -exec ldd {} + 2>/dev/null |
	sed -nE 's|.*[[:space:]](/[^ ]+) \(0x.*|\1|p' | sort -u >"$tmp/libs" || :
while read -r lib; do
	mkdir -p "$root$(dirname "$lib")"
	cp -L "$lib" "$root$lib"
done <"$tmp/libs"
{
	for arg in "$@"; do
		printf "'%s' " "${arg//\'/\'\\\'\'}"
	done
	echo
} >"$root/vm-run/command"
find "$root" -exec touch -h -d @0 {} +
(cd "$root" && find . | sort | cpio -o -H newc -R 0:0 --reproducible --quiet) \
	>"$tmp/initrd" || fail $EX_MACHINERY "cpio failed"

# shellcheck disable=SC2054 # QEMU's commas
args=(-machine pc -nodefaults -no-user-config -nic none -display none -no-reboot
	-m "$mem" -smp "$smp,sockets=$smp" -kernel "$kernel" -initrd "$tmp/initrd"
	-chardev "file,id=console,path=$log" -serial chardev:console
	-chardev "file,id=command,path=$tmp/output" -serial chardev:command
	-chardev "file,id=status,path=$tmp/status"
	-device isa-debugcon,iobase=0xe9,chardev=status)
# On a busy host the check of the timer may find none in its time, and panic.
cmdline="console=ttyS0,115200 earlyprintk=ttyS0,115200 panic=-1 reboot=t no_timer_check"
if [ -n "$icount" ]; then
	# The CPU: an AMD one (no page table isolation) with what TCG has long
	# been able to do. The clock: exactly 1 GHz, said and not calibrated,
	# and no other clock to refine it with; settle (see guest-init) waits
	# for the kernel to change over to it, and for what boots in the
	# background: no host time is spent on a guest's sleep. The kernel's
	# checks of its timers loop on the TSC, which is slow here: skip them.
	args+=(-machine hpet=off -accel "tcg,thread=single" -icount "shift=0,sleep=off" -seed 1
		-rtc "base=2026-01-01T00:00:00,clock=vm"
		-cpu "qemu64,+smep,+smap,+fsgsbase,+erms,+popcnt,+rdrand,+rdseed,+pdpe1gb,+invtsc")
	cmdline+=" nokaslr norandmaps tsc_early_khz=1000000 tsc=reliable clocksource=tsc nolapic_timer settle=3"
else
	args+=(-accel "tcg,thread=multi" -cpu max)
fi
if [ "$numa" -gt 1 ]; then
	for ((i = 0; i < numa; i++)); do
		args+=(-object "memory-backend-ram,id=mem$i,size=$((mem / numa + (i ? 0 : mem % numa)))M"
			-numa "node,nodeid=$i,memdev=mem$i")
	done
	for ((i = 0; i < smp; i++)); do
		args+=(-numa "cpu,node-id=$((i % numa)),socket-id=$i")
	done
fi
args+=(-append "$cmdline${append:+ $append}")

# QEMU dies with this script, whatever kills it.
touch "$tmp/output" "$tmp/status"
setpriv --pdeathsig KILL qemu-system-x86_64 "${args[@]}" \
	</dev/null >"$tmp/qemu.log" 2>&1 &
qemu=$!
tail -n +1 -f -s 0.1 --pid="$qemu" "$tmp/output" 2>/dev/null &
tail=$!

end=$((SECONDS + timeout))
timed_out=
while kill -0 "$qemu" 2>/dev/null; do
	if [ "$SECONDS" -ge "$end" ]; then
		timed_out=1
		kill -KILL "$qemu"
		break
	fi
	kill -0 "$tail" 2>/dev/null ||
		fail $EX_MACHINERY "nobody reads the output any more, guest killed"
	sleep 0.1
done
rc=0
wait "$qemu" 2>/dev/null || rc=$?
wait "$tail" || :
qemu=
tail=

splat='(^|\] |: )(WARNING: |BUG: |UBSAN: |Oops: |Oops[: ]|kernel BUG at|general protection fault|invalid opcode|Kernel panic|INFO: (task|possible|inconsistent|trying to register|suspicious)|rcu: INFO: .*stall|page_owner |list_(add|del) corruption)|\[ cut here \]|DEBUG_LOCKS_WARN_ON'
seen() { grep -aqE -e "$1" "$log"; }
started=
! seen '^vm-run: start' || started=1

# With more than one thread, QEMU can still run the breakpoint of a kernel that
# is patching its text when the kernel is done with that. No init, no output yet:
# that can be done over.
if [ -z "$started${VM_RUN_AGAIN:-}" ] && [ "$smp" -gt 1 ] && seen 'Oops: int3:'; then
	say "$SELF: $name: a breakpoint outlived the kernel's text patching, as QEMU's MTTCG lets it; booting again"
	cleanup
	VM_RUN_AGAIN=1 exec "$0" "${all_args[@]}"
fi

if seen 'Kernel panic'; then
	if [ -z "$started" ] && seen 'No working init|Requested init .* failed|Unable to mount root fs|Failed to execute /init'; then
		fail $EX_NOINIT "the guest has no working init"
	fi
	fail $EX_PANIC "kernel panic: $(grep -aoE 'Kernel panic.*' "$log" | head -n 1 | tr -d '\r')"
fi
if [ -z "$allow_splat" ] && seen "$splat"; then
	fail $EX_SPLAT "the kernel complained${timed_out:+ (and did not end in $timeout s)}"
fi
if [ -n "$timed_out" ]; then
	quiet=$(($(date +%s) - $(stat -c %Y "$tmp/output" "$log" | sort -n | tail -n 1)))
	if [ -n "$started" ]; then
		fail $EX_TIMEOUT "time-out: COMMAND did not end in $timeout s, last output $quiet s ago"
	fi
	fail $EX_TIMEOUT "time-out: boot hangs, no init after $timeout s, last output $quiet s ago"
fi
[ "$rc" -eq 0 ] ||
	fail $EX_MACHINERY "QEMU failed with exit code $rc: $(tail -n 3 "$tmp/qemu.log")"
[ -n "$started" ] ||
	fail $EX_MACHINERY "the guest stopped before its init ran"
[ "$(stat -c %s "$tmp/status")" -eq 1 ] ||
	fail $EX_MACHINERY "the guest stopped before COMMAND ended"
tainted=$(sed -n 's/^vm-run: end.* tainted \([0-9]*\).*/\1/p' "$log")
[ "$tainted" = 0 ] || [ -n "$allow_splat" ] ||
	fail $EX_SPLAT "the kernel is tainted: ${tainted:-unknown}"
exit "$(od -An -tu1 "$tmp/status" | tr -d ' ')"
