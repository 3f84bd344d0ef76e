#!/usr/bin/env bash
# Runs go mod tidy in every module of go.work. By itself, go mod tidy ignores
# go.work and asks the module proxy for versions of ours that are not published yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/modules.sh
. scripts/modules.sh

tidy() {
	go mod tidy -modfile="$MODFILE"
	local path
	for path in "${paths[@]}"; do
		go mod edit -dropreplace "$path" "$MODFILE"
	done
	cp "$MODFILE" go.mod
	[[ ! -e ${MODFILE%.mod}.sum ]] || cp "${MODFILE%.mod}.sum" go.sum
}

mapfile -t paths < <(go list -m)
mapfile -t folders < <(modules)
for folder in "${folders[@]}"; do
	alone "$folder" tidy
done
