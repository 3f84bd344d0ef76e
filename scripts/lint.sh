#!/usr/bin/env bash
# Checks everything that can be checked without running the code. Every check is
# run although one before it fails, so that one run tells everything.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Git may refuse to read a clone that belongs to another user, and nothing here
# needs the commit in a binary.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

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

# in_module FOLDER COMMAND...
in_module() {
	(cd "$1" && shift && "$@")
}

# shellcheck source=scripts/modules.sh
. scripts/modules.sh
mapfile -t modules < <(go list -m -f '{{.Dir}}')
if ((${#modules[@]} == 0)); then
	echo "go.work names no module"
	exit 1
fi

check formatted
check go vet "${modules[@]/%//...}"
check bash scripts/golangci-lint.sh config verify
for module in "${modules[@]}"; do
	check in_module "$module" bash "$PWD/scripts/golangci-lint.sh" run ./...
	check in_module "$module" go mod tidy -diff
done
export GOWORK=off
for module in "${standalone[@]}"; do
	check in_module "$module" go vet ./...
	check in_module "$module" bash "$PWD/scripts/golangci-lint.sh" run ./...
	check in_module "$module" go mod tidy -diff
done
unset GOWORK
for script in .ci/run scripts/*.sh; do
	check bash -n "$script"
done

if ((${#failed[@]} > 0)); then
	printf 'lint failed: %s\n' "${failed[@]}"
	exit 1
fi
