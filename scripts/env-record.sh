#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# env-record.sh [--cpu N]
#
# Prints what a measurement on this machine depends on, as 'key: value' lines:
# CPU, microcode, governor, turbo, mitigations, clocksource, hypervisor, THP,
# kernel and compiler. A line 'unsuitable:' names each state in which the times
# of this machine are not worth much.
#
# --cpu N   the CPU that the benchmark is pinned to (default: 0)
#
# No host, user or disk is named.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cpu=0
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--cpu)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		cpu=$2
		shift 2 ;;
	*) usage_error "unknown option '$1'" ;;
	esac
done
[[ $cpu =~ ^[0-9]+$ ]] || usage_error "--cpu wants a number, not '$cpu'"

# SYSROOT= is for the tests.
sys=${SYSROOT:-}/sys
proc=${SYSROOT:-}/proc

# value FILE: its first line, or "unknown".
value()
{
	local v=

	[ ! -r "$1" ] || read -r v <"$1" || :
	echo "${v:-unknown}"
}

cpuinfo()
{
	awk -F '[[:space:]]*: ' -v name="$1" '
		$1 == name { print $2; found = 1; exit }
		END { if (!found) print "unknown" }' "$proc/cpuinfo"
}

# The parameters that change timing; others may name disks, hosts or people.
cmdline()
{
	local words

	read -ra words <"$proc/cmdline" || :
	printf '%s\n' "${words[@]}" | sed '/^--$/,$d' | grep -E \
		'^(mitigations|spec|retbleed|l1tf|mds|mmio|srbds|tsx|tsa|gather_data|reg_file|indirect_target|srso|vmscape|bhi|its|pti$|pti=|nopti|nokaslr|norandmaps|isolcpus|nohz|rcu_nocbs|irqaffinity|nosmt|maxcpus|idle|processor\.|intel_idle|intel_pstate|amd_pstate|cpufreq|cpuidle|tsc|clocksource|hpet|preempt|transparent_hugepage|thp_|hugepage|default_hugepagesz|numa|init_on_|page_|slub_|slab_|debug_|kasan|audit|lockdown|skew_tick|threadirqs|nowatchdog|nmi_watchdog|vsyscall|la57|no5lvl)' |
		tr '\n' ' ' || :
}

hypervisor=none
if grep -qw hypervisor <(cpuinfo flags); then
	hypervisor=$(value "$sys/hypervisor/type")
	[ "$hypervisor" != unknown ] || hypervisor="yes, of unknown type"
fi
freq=$sys/devices/system/cpu/cpu$cpu/cpufreq
governor=$(value "$freq/scaling_governor")
turbo=unknown
case $(value "$sys/devices/system/cpu/intel_pstate/no_turbo") in
0) turbo=on ;;
1) turbo=off ;;
esac
case $(value "$sys/devices/system/cpu/cpufreq/boost") in
0) turbo=off ;;
1) turbo=on ;;
esac
clocksource=$(value "$sys/devices/system/clocksource/clocksource0/current_clocksource")
smt=$(value "$sys/devices/system/cpu/smt/active")
thp=$sys/kernel/mm/transparent_hugepage
cpus=$(grep -c '^processor' "$proc/cpuinfo")
load=$(value "$proc/loadavg")
load=${load%% *}

{
	echo "machine.cpu_model: $(cpuinfo 'model name')"
	echo "machine.cpu_family_model_stepping: $(cpuinfo 'cpu family') $(cpuinfo model) $(cpuinfo stepping)"
	echo "machine.microcode: $(cpuinfo microcode)"
	echo "machine.cpus: $cpus"
	echo "machine.smt_active: $smt"
	echo "machine.memory_mib: $(awk '/^MemTotal:/ { print int($2 / 1024) }' "$proc/meminfo")"
	echo "machine.governor: $governor"
	echo "machine.frequency_driver: $(value "$freq/scaling_driver")"
	echo "machine.turbo: $turbo"
	echo "machine.clocksource: $clocksource"
	echo "machine.hypervisor: $hypervisor"
	echo "machine.thp_enabled: $(value "$thp/enabled")"
	echo "machine.thp_shmem_enabled: $(value "$thp/shmem_enabled")"
	echo "machine.numa_balancing: $(value "$proc/sys/kernel/numa_balancing")"
	echo "machine.load: $load"
	echo "machine.kernel_release: $(value "$proc/sys/kernel/osrelease")"
	echo "machine.kernel_version: $(value "$proc/sys/kernel/version")"
	echo "machine.kernel_cmdline: $(cmdline)"
	for f in "$sys"/devices/system/cpu/vulnerabilities/*; do
		[ ! -e "$f" ] || echo "machine.mitigation.${f##*/}: $(value "$f")"
	done

	[ "$hypervisor" = none ] || echo "unsuitable: a hypervisor is under this kernel ($hypervisor)"
	case $turbo in
	on) echo "unsuitable: turbo is on" ;;
	unknown) echo "unsuitable: whether turbo is on can't be seen" ;;
	esac
	case $governor in
	performance) ;;
	unknown) echo "unsuitable: the frequency governor can't be seen" ;;
	*) echo "unsuitable: the governor '$governor' scales the frequency" ;;
	esac
	[ "$clocksource" = tsc ] || echo "unsuitable: the clocksource is $clocksource, not tsc"
	awk -v load="$load" 'BEGIN { exit !(load > 0.5) }' &&
		echo "unsuitable: other work runs here (load $load)"
	[ "$cpus" -gt 1 ] || echo "unsuitable: one CPU only, shared with everything else"
} | {
	# Wherever else they may stand, such as in the name of a kernel.
	host=$(uname -n) user=$(id -un)
	sed -E 's/[[:space:]]+$//' | awk -v host="$host" -v user="$user" '
	function drop(name,   i) {
		if (length(name) < 3 || name == "root" || name == "localhost")
			return
		while ((i = index($0, name)))
			$0 = substr($0, 1, i - 1) "[removed]" substr($0, i + length(name))
	}
	{ drop(host); drop(user); print }'
}
