#!/usr/bin/env bash
# Runs go mod tidy in every module of go.work. go mod tidy itself ignores go.work, and asks
# the module proxy for versions of our modules that are not published yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/modules.sh
. scripts/modules.sh

# tidied MODFILE
tidied() {
	local path modfile=$1
	go mod tidy -modfile="$modfile"
	for path in "${paths[@]}"; do
		go mod edit -dropreplace "$path" "$modfile"
	done
	cp "$modfile" go.mod
	[[ ! -e ${modfile%.mod}.sum ]] || cp "${modfile%.mod}.sum" go.sum
}

mapfile -t paths < <(go list -m)
mapfile -t folders < <(modules)
for folder in "${folders[@]}"; do
	alone "$folder" tidied
done
