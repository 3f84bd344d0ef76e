#!/usr/bin/env bash
# Runs the pinned golangci-lint with the given arguments. The first run builds it from its Go
# module. The binary is kept outside the clone. Its path contains the Go version, because a
# linter that was built with an older Go rejects newer code.
set -euo pipefail

version=v2.15.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/noonlock/bin/golangci-lint-$version-$(go env GOVERSION)

if [[ ! -x $folder/golangci-lint ]]; then
	echo "building golangci-lint $version; this takes a few minutes, once" >&2
	GOBIN=$folder GOWORK=off CGO_ENABLED=0 \
		go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi
exec "$folder/golangci-lint" "$@"
