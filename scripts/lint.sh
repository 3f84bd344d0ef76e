#!/usr/bin/env bash
# Runs all checks that do not run the code. After a failed check, the others still run, so
# one run reports all errors.
#
# The linters read all dependencies of a module. So those of adapters/clientgo, bench and examples/lottery take longer
# than the rest: without NOONLOCK_NIGHTLY=1, these modules are only built, unless they have changed since the merge base with origin/main.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# shellcheck source=scripts/flags.sh
. scripts/flags.sh

# Collecting less often saves the linters a quarter of their processor time.
export GOGC=${GOGC:-400} GOMEMLIMIT=${GOMEMLIMIT:-6GiB}

failed=()
check() {
	echo "== $*"
	"$@" || failed+=("$*")
}

formatted() {
	local unformatted
	unformatted=$(gofmt -l .) || return 1
	[[ -z $unformatted ]] || { echo "not formatted, see make fmt: $unformatted"; return 1; }
}

# sentences: comments have none of the words after which readers go back to see what they stand for.
sentences() {
	! git grep -nP '(//|--).*\b(that of|those of|one that|ones that|such(?! as)|whoever|besides|likewise)\b|(//|--).*(; nil:|0: none)|(//|--) Who ' \
		-- '*.go' '*.lua' ':!*_test.go' ':!bench' ':!test' ':!tools'
}

# in_module FOLDER COMMAND...
in_module() {
	(cd "$1" && shift && "$@")
}

# tidy MODFILE: go mod tidy would change neither go.mod nor go.sum.
tidy() {
	go mod tidy -diff -modfile="$1"
}

# dependencies prints the module versions that the packages in this folder are built with.
dependencies() {
	go list "$@" -deps -test -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}' ./... |
		sed '/^github.com\/noonlock\//d' | sort -u
}

# same_versions FILE MODFILE: the versions in FILE are those that the module's own go.mod
# selects.
same_versions() {
	dependencies -modfile="$2" | diff - "$1"
}

# unraised FOLDER: go.work selects the same versions as the go.mod of the module in FOLDER.
unraised() {
	in_module "$1" dependencies >"$scratch/dependencies"
	alone "$1" same_versions "$scratch/dependencies"
}

# linted FOLDER: the linters read the module. By day, they read those with many dependencies only after a change.
linted() {
	[[ ! ${1#"$PWD/"} =~ ^(adapters/clientgo|bench|examples/lottery)$ ]] || changed "$1" .golangci.yml
}

# shellcheck source=scripts/since.sh
. scripts/since.sh
# shellcheck source=scripts/modules.sh
. scripts/modules.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mapfile -t folders < <(modules)
if ((${#folders[@]} == 0)); then
	echo "go.work names no module"
	exit 1
fi

check formatted
check sentences
check bash scripts/golangci-lint.sh config verify
all=()
for folder in "${folders[@]}"; do
	if linted "$folder"; then
		all+=("$folder/...")
	else
		check in_module "$folder" go build ./...
	fi
done
check bash scripts/golangci-lint.sh run "${all[@]}"
for folder in "${folders[@]}"; do
	check alone "$folder" tidy
	check unraised "$folder"
done
# bench, test/chaos and tools are not in go.work.
export GOWORK=off
for folder in bench test/chaos; do
	! linted "$folder" || check in_module "$folder" bash "$PWD/scripts/golangci-lint.sh" run ./...
	check in_module "$folder" go mod tidy -diff
done
check in_module tools go mod tidy -diff
check bash scripts/chart-tool.sh actionlint -shellcheck= -pyflakes=
for script in .ci/run scripts/*.sh; do
	check bash -n "$script"
done

if ((${#failed[@]} > 0)); then
	printf 'lint failed: %s\n' "${failed[@]}"
	exit 1
fi
