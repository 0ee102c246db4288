# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# Kernel sources from the machine's own Debian mirror. Source it after lib.sh.
#
# Debian 12 does not carry the kernels needed here, newer suites of the same
# mirror do. apt gets a private list and state below $BUILD/apt, so that it
# verifies signatures as always, while the system's own configuration stays.

DEBIAN_SUITES=(bookworm trixie-backports sid experimental)

# debian_mirror: print the URI of the mirror that the system's apt uses.
debian_mirror()
{
	# shellcheck disable=SC2016 # the names are apt's
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(LABEL)' \
		'Created-By: Packages' 2>/dev/null |
	awk '$3 == "Debian" { print $1; exit }'
}

# debian_apt CMD...: apt-get or apt-cache with the private configuration.
debian_apt()
{
	local apt=$BUILD/apt cmd=$1
	shift

	"$cmd" -o Dir::Etc::SourceList="$apt/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null \
		-o Dir::Etc::Preferences=/dev/null \
		-o Dir::Etc::PreferencesParts=/dev/null \
		-o Dir::State="$apt/state" -o Dir::State::status="$apt/status" \
		-o Dir::Cache="$apt/cache" \
		-o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

# debian_apt_update: make the private configuration and fetch its lists, at
# most once a day.
debian_apt_update()
{
	local apt=$BUILD/apt uri suite key
	key=/usr/share/keyrings/debian-archive-keyring.gpg

	need apt-get dpkg-deb
	if [ -n "$(find "$apt/updated" -mmin -1440 2>/dev/null)" ]; then
		return
	fi
	uri=$(debian_mirror)
	if [ -z "$uri" ] && [ "$(id -u)" -eq 0 ]; then
		# A fresh container has sources but no lists yet.
		run_log "$BUILD/log/apt-update.log" apt-get update || true
		uri=$(debian_mirror)
	fi
	[ -n "$uri" ] ||
		die "apt knows no Debian mirror; run 'apt-get update' as root, or give a kernel tree with KDIR="
	[ -r "$key" ] || die "$key is missing; install debian-archive-keyring"

	mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial
	: >"$apt/status"
	for suite in "${DEBIAN_SUITES[@]}"; do
		printf '%s [signed-by=%s] %s %s main\n' \
			deb "$key" "$uri" "$suite" deb-src "$key" "$uri" "$suite"
	done >"$apt/sources.list"
	step "fetching the package lists of ${DEBIAN_SUITES[*]}"
	run_log "$BUILD/log/apt-private.log" debian_apt apt-get update ||
		die "the package lists could not be fetched or verified"
	touch "$apt/updated"
}

# debian_binary_version PACKAGE: print its newest version in the suites.
debian_binary_version()
{
	local v newest=
	while read -r v; do
		if [ -z "$newest" ] || dpkg --compare-versions "$v" gt "$newest"; then
			newest=$v
		fi
	done < <(debian_apt apt-cache madison "$1" |
		 awk -F' *[|] *' '$3 ~ /Packages/ { print $2 }')
	[ -n "$newest" ] || return 1
	printf '%s\n' "$newest"
}

# debian_linux_source SERIES DIR: put the tree of the newest binary package
# linux-source-SERIES into DIR, which must not exist. The package's version is
# printed.
debian_linux_source()
{
	local pkg=linux-source-$1 dir=$2 dl version deb
	dl=$BUILD/dl/$pkg

	debian_apt_update
	version=$(debian_binary_version "$pkg") ||
		die "$pkg is in none of the suites ${DEBIAN_SUITES[*]} of this machine's mirror; give a kernel tree with KDIR="
	deb=$dl/$version.deb
	if [ ! -e "$deb" ]; then
		need_space "$dl" 3000
		step "downloading $pkg $version"
		rm -rf "$dl/partial"
		mkdir -p "$dl/partial"
		# apt checks the file against the signed lists.
		(cd "$dl/partial" &&
		 run_log "$BUILD/log/$pkg.log" \
			debian_apt apt-get download "$pkg=$version") ||
			die "$pkg $version could not be downloaded"
		mv "$dl"/partial/*.deb "$deb"
	fi
	step "unpacking $pkg $version"
	rm -rf "$dir.tmp"
	mkdir -p "$dir.tmp/deb" "$dir.tmp/tree"
	dpkg-deb -x "$deb" "$dir.tmp/deb"
	tar -xf "$dir.tmp/deb/usr/src/$pkg.tar.xz" -C "$dir.tmp/tree" \
		--strip-components=1
	mv "$dir.tmp/tree" "$dir"
	rm -rf "$dir.tmp"
	printf '%s\n' "$version"
}
