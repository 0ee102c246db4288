#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: setup-deps.sh [--check | --list]
#
# Install the Debian packages that this project needs and that are missing.
# As root it installs them; as anybody else it prints the one line to run.
# With nothing missing it does nothing, in well under a second.
#
#   --check  install nothing, exit 1 and name what is missing
#   --list   print the package names
#   --help   this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PACKAGES=(
	# the kernel
	gcc libc6-dev make flex bison bc libelf-dev libssl-dev cpio xz-utils
	ccache git kmod rsync perl procps
	# boots
	qemu-system-x86 busybox-static e2fsprogs
	# selftests/mm
	libcap-dev libnuma-dev liburing-dev stress-ng clang
	# checks
	shellcheck sparse codespell spin coccinelle libpython3-dev
	gcc-i686-linux-gnu libc6-dev-i386-cross gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu
	# reports, plots
	python3 gnuplot-nox
	# the way to the list
	b4 git-email libmailtools-perl libauthen-sasl-perl libio-socket-ssl-perl
)

mode=install
case "${1:-}" in
-h|--help) help_exit ;;
--check) mode=check ;;
--list) printf '%s\n' "${PACKAGES[@]}"; exit 0 ;;
'') ;;
*) usage_error "unknown option '$1'" ;;
esac

command -v dpkg-query >/dev/null ||
	die "this is no Debian; install the counterparts of: ${PACKAGES[*]}"

missing_packages()
{
	# dpkg-query fails for a name it never heard of: that one is missing too.
	{ dpkg-query -W -f '${Package} ${db:Status-Status}\n' \
		"${PACKAGES[@]}" 2>/dev/null || true; } |
	awk -v all="${PACKAGES[*]}" '
		$2 == "installed" { have[$1] = 1 }
		END {
			n = split(all, want, " ")
			for (i = 1; i <= n; i++)
				if (!(want[i] in have))
					print want[i]
		}'
}

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -gt 0 ] || exit 0

line="apt-get install --no-install-recommends ${missing[*]}"
if [ "$mode" = check ] || [ "$(id -u)" -ne 0 ]; then
	die "packages are missing; as root: apt-get update && $line"
fi

lock setup-deps
log=$BUILD/log/setup-deps.log
step "installing ${#missing[@]} packages (log: $log)"
export DEBIAN_FRONTEND=noninteractive
run_log "$log" apt-get -o Acquire::Retries=3 update ||
	warn "apt-get update failed; trying with the package lists as they are"
# shellcheck disable=SC2086 # $line is our own list of words
run_log "$log" $line -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 ||
	die "packages could not be installed; the log above says why"

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] || die "still missing: ${missing[*]}"
step "all packages are there"
