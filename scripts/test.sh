#!/usr/bin/env bash
# Runs all tests of every module in go.work under the race detector, with real
# servers. Missing packages are installed if that is allowed. If a server is still missing,
# its tests are skipped. With NOONLOCK_REQUIRE_SERVERS=1, they fail.
#
# internal/testreport prints a line for each package and a summary. The last two lines of
# the summary are also written to the file in NOONLOCK_TEST_SUMMARY.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Git may refuse to read a clone that belongs to another user, and no test needs
# the commit in a binary.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

required=${NOONLOCK_REQUIRE_SERVERS:-}
scratch=$(mktemp -d)

as_root=()                   # the command that runs another one as root
policy=/usr/sbin/policy-rc.d # see install
remove_policy=:
trap '$remove_policy; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

# internal/servers searches the same folders in addition to PATH.
has() {
	PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec" command -v "$1" >/dev/null
}

has_postgres() {
	has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || compgen -G '/usr/pgsql-*/bin/initdb' >/dev/null
}

# -race needs a C compiler and its headers. Only a build proves that both work.
has_race() {
	(cd / && go build -race net) 2>"$scratch/race"
}

# missing prints the Debian packages that are needed and not installed, one per line.
missing() {
	[[ -n ${NOONLOCK_REDIS_SERVER:-} ]] || has redis-server || echo redis-server
	{ has mariadbd && has mariadb-install-db && has mariadb; } || echo mariadb-server
	has_postgres || echo postgresql
	has chromium || has google-chrome || echo chromium
	has_race || printf '%s\n' gcc libc6-dev
}

# may_install succeeds if packages can be installed without a password.
may_install() {
	command -v apt-get >/dev/null || return 1
	((EUID != 0)) || return 0
	as_root=(sudo -n)
	"${as_root[@]}" true 2>/dev/null
}

apt_get() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -y -q -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$scratch/apt" 2>&1
}

# install_one PACKAGE
install_one() {
	# The core packages of MariaDB are enough and contain no service. Some distributions
	# do not have packages with these names.
	[[ $1 != mariadb-server ]] || ! apt_get install --no-install-recommends mariadb-server-core mariadb-client-core || return 0
	apt_get install --no-install-recommends "$1"
}

# install PACKAGE...
install() {
	# The packages would start their servers. A policy that exits with 101 prevents this on
	# Debian. An existing policy belongs to the administrator and is kept.
	if [[ ! -e $policy ]]; then
		remove_policy="${as_root[*]} rm -f $policy"
		printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
		"${as_root[@]}" chmod 755 "$policy"
	fi
	local package updated=
	for package in "$@"; do
		install_one "$package" && continue
		# The package lists may be missing or out of date.
		[[ -z $updated ]] && updated=yes && apt_get update && install_one "$package" && continue
		echo "installing $package failed; the last lines of apt-get:"
		tail -n 15 "$scratch/apt"
	done
	$remove_policy
	remove_policy=:
}

mapfile -t packages < <(missing)
if ((${#packages[@]} > 0)); then
	if may_install; then
		echo "installing packages for the tests: ${packages[*]}"
		install "${packages[@]}"
		mapfile -t packages < <(missing)
	fi
	if ((${#packages[@]} > 0)); then
		echo "missing packages that this script cannot install: ${packages[*]}"
	fi
fi

# The Lua interpreter of miniredis shares nothing between goroutines. Without -race it saves a
# fifth of the time.
race=(-race '-gcflags=github.com/yuin/gopher-lua/...=-race=false')
if ! has_race; then
	race=()
	cat "$scratch/race"
	echo "the race detector is off: it needs a working C compiler (Debian packages gcc, libc6-dev)"
	[[ $required != 1 ]] || { echo "NOONLOCK_REQUIRE_SERVERS=1 requires the race detector"; exit 1; }
fi

# shellcheck source=scripts/modules.sh
. scripts/modules.sh
mapfile -t folders < <(modules)
((${#folders[@]} > 0)) || { echo "go.work names no module"; exit 1; }

go build -o "$scratch/testreport" ./internal/testreport

# -count=1: a cached result does not test the servers. Compilers and linkers run with a low
# priority, as they would slow down the servers of the tests that run beside them.
tests() {
	local flags=(-json -count=1 -toolexec 'nice -n 19') result=0 topologies=${NOONLOCK_TOPOLOGIES:-}
	unset NOONLOCK_TOPOLOGIES
	go test "${flags[@]}" "${race[@]}" -timeout 25m "${folders[@]/%//...}" || result=$?
	if [[ -n $topologies ]]; then # without -race: most of these tests wait for real servers
		NOONLOCK_TOPOLOGIES=$topologies go test "${flags[@]}" -timeout 25m ./lockcore ./election/... ./singleton ./singleton/internal/... || result=$?
	fi
	if ((${#race[@]} > 0)); then # a measurement and the deeper search, which take too long under -race
		# All mutants take too long to wait for. CI tries every one.
		[[ $required == 1 ]] || export NOONLOCK_MUTANTS_EACH=${NOONLOCK_MUTANTS_EACH:-10}
		go test "${flags[@]}" -run TestManyLeasesEndWithinTheMargin ./internal/lease || result=$?
		go test "${flags[@]}" -timeout 30m ./test/explorer || result=$?
	fi
	return "$result"
}
tests | "$scratch/testreport" -summary "${NOONLOCK_TEST_SUMMARY:-}"
