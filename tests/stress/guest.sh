#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
#
# In the guest: a disk and swap in files behind loop devices, zram if the kernel
# has it; 16 KiB folios for who asks for them; NUMA hinting as often as can be,
# not a matter of seconds. Then mprotect_stress with the arguments of this
# script.

set -e
truncate -s 64M /tmp/disk /tmp/swap
losetup /dev/loop0 /tmp/disk
losetup /dev/loop1 /tmp/swap
mke2fs -b 4096 /dev/loop0 >/dev/null
mkdir -p /mnt/disk
mount -t ext4 /dev/loop0 /mnt/disk
mkswap /dev/loop1 >/dev/null
zram=
if [ -e /sys/block/zram0 ]; then
	echo 64M >/sys/block/zram0/disksize
	mkswap /dev/zram0 >/dev/null
	zram='-z /dev/zram0'
fi
echo madvise >/sys/kernel/mm/transparent_hugepage/hugepages-16kB/enabled
for file in scan_delay_ms scan_period_min_ms scan_period_max_ms; do
	echo 1 >/sys/kernel/debug/sched/numa_balancing/$file
done
echo 1 >/proc/sys/kernel/numa_balancing
# shellcheck disable=SC2086
exec mprotect_stress -d /mnt/disk -w /dev/loop1 $zram "$@"
