#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# guest-behaviour.sh [mprotect_test option]...
#
# In the guest: runs mprotect_test with what it needs of a machine, which is a
# file system on a disk (ext4 on a loop device, made with busybox) and swap
# space (zram, else another loop device).

disk=/tmp/disk

fail()
{
	echo "guest-behaviour.sh: $*" >&2
	exit 125
}

mkdir "$disk" && dd if=/dev/zero of="$disk.img" bs=1M count=8 2>/dev/null
mke2fs -F "$disk.img" >/dev/null 2>&1
mount -t ext4 -o loop "$disk.img" "$disk" || fail "no file system on a disk"

if [ -e /sys/block/zram0 ]; then
	swap=/dev/zram0
	echo 64M >/sys/block/zram0/disksize
else
	swap=/dev/loop7
	dd if=/dev/zero of=/tmp/swap.img bs=1M count=64 2>/dev/null
	losetup "$swap" /tmp/swap.img
fi
mkswap "$swap" >/dev/null
swapon "$swap" || fail "no swap space on $swap"

MPROTECT_TEST_DIR=$disk exec mprotect_test "$@"
