#!/usr/bin/env bash
# Runs tests with real servers, and reports them. Missing packages are installed if that is
# allowed. If a server is still missing, its tests are skipped. With NOONLOCK_REQUIRE_SERVERS=1,
# they fail.
#
# usage: scripts/test.sh [all | clientgo | race | topologies | mutants]
#
#   all         the tests of all modules in go.work except adapters/clientgo (default)
#   clientgo    adapters/clientgo, with the electors of client-go and controller-runtime
#   race        the packages in which goroutines of the library meet, under the race detector
#   topologies  locks, elections and jobs in a Redis Cluster and behind a Sentinel
#   mutants     the explorations, and the hunt for mutants of the scripts in NOONLOCK_MUTANTS
#
# NOONLOCK_NIGHTLY=1 repeats more, see testenv.Size. A test that fails runs once more, alone, at the
# end. If it passes then, the run passes, and the last lines name it. The very last line is also
# written to the file in NOONLOCK_TEST_SUMMARY.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:-all}
began=$SECONDS

# shellcheck source=scripts/flags.sh
. scripts/flags.sh
# Collecting less often saves the compiler and the tests a third of their processor time.
export GOGC=${GOGC:-800}

scratch=$(mktemp -d)

as_root=()                   # the command that runs another one as root
policy=/usr/sbin/policy-rc.d # see install
remove_policy=:
trap '$remove_policy; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

# internal/testing/servers searches the same folders in addition to PATH.
has() {
	PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec" command -v "$1" >/dev/null
}

has_postgres() {
	has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || compgen -G '/usr/pgsql-*/bin/initdb' >/dev/null
}

# -race needs a C compiler and its headers. Only a build proves that both work.
has_race() {
	[[ $mode != race ]] || (cd / && GOFLAGS='' go build -race net) 2>"$scratch/race"
}

# missing prints the Debian packages that are needed and not installed, one per line.
missing() {
	[[ -n ${NOONLOCK_REDIS_SERVER:-} ]] || has redis-server || echo redis-server
	{ has mariadbd && has mariadb-install-db && has mariadb; } || echo mariadb-server
	has_postgres || echo postgresql
	has chromium || has google-chrome || echo chromium
	has skopeo || echo skopeo
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

# shellcheck source=scripts/modules.sh
. scripts/modules.sh
mapfile -t folders < <(modules)
((${#folders[@]} > 0)) || { echo "go.work names no module"; exit 1; }

# -count=1: a cached result does not test the servers. Compilers and linkers run with a lower
# priority, as they would slow down the servers of the tests that run beside them. go vet is a part
# of lint. Most tests wait for servers, so more of them run at a time than there are processors.
limit=20m
[[ -z ${NOONLOCK_NIGHTLY:-} ]] || limit=90m
flags=(-count=1 -vet=off -toolexec 'nice -n 5' -timeout "$limit" -p 6 -parallel 12)
budget=360
case $mode in
all)
	# The packages whose tests take longest are first. They mostly wait. Meanwhile the rest is built,
	# except for SQLite, which would then take minutes. What does not build is reported below.
	go test -vet=off -p 3 -c -o "$scratch/" ./lockcore ./singleton ./examples/lottery/internal/store 2>"$scratch/build" || true
	packages=(./lockcore/... ./singleton ./examples/lottery/...)
	for folder in "${folders[@]:1}" "${folders[0]}"; do
		[[ $folder == */adapters/clientgo ]] || packages+=("$folder/...")
	done
	;;
clientgo)
	# client-go alone takes longer to build than all tests of lockcore compute.
	packages=(./adapters/clientgo/...)
	budget=120
	;;
race)
	# The Lua interpreter of miniredis shares nothing between goroutines. Tests of scripts have one
	# goroutine. What runs in a bubble and on a real server runs only in the bubble, and with two of the
	# four kinds of locks. Fewer tests run at a time, as they compute all the time.
	flags+=(-race '-gcflags=github.com/yuin/gopher-lua/...=-race=false' -p 2 -parallel 4)
	flags+=(-skip 'Scripts|Plays|ToTheMillisecond|MessagesAndNotes|WhoseTokenIsKept|ManySlots|/^(redis|reentrant|write)$|//^redis$')
	packages=(./lockcore/... ./election/... ./singleton ./singleton/internal/{ledger,plan,replica} ./statusz ./healthz)
	packages+=(./internal/{cluster,console/...,holding,lease,lock,logqueue,readiness,registry,several,testing/...,wire/...})
	budget=600
	;;
topologies)
	export NOONLOCK_TOPOLOGIES=1
	packages=(./lockcore ./election/... ./singleton ./singleton/internal/...)
	budget=180
	;;
mutants)
	packages=(./test/explorer)
	budget=300
	;;
*)
	echo "test.sh: the tests are \"$mode\"; they must be all, clientgo, race, topologies or mutants" >&2
	exit 2
	;;
esac

# What has no tests is built by lint.
mapfile -t packages < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${packages[@]}")

(cd tools && GOWORK=off go build -o "$scratch/gotestsum" gotest.tools/gotestsum)
result=0
"$scratch/gotestsum" --no-color --format pkgname --format-hide-empty-pkg --format-icons text --hide-summary skipped \
	--jsonfile "$scratch/events" --rerun-fails=1 --rerun-fails-max-failures 20 --rerun-fails-abort-on-data-race \
	--packages "${packages[*]}" -- "${flags[@]}" || result=$?
awk -v what="$mode" -v took=$((SECONDS - began)) -v budget="$budget" -v failed_run="$result" -v summary="${NOONLOCK_TEST_SUMMARY:-}" -f scripts/test-summary.awk "$scratch/events"
