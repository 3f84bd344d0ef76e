#!/usr/bin/env bash
# Runs the pinned golangci-lint with the given arguments. It is built from its Go
# module the first time and kept outside the clone; the Go version is part of the
# path because a linter built by an older Go refuses newer code.
set -euo pipefail

version=v2.15.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/noonlock/bin/golangci-lint-$version-$(go env GOVERSION)

if [[ ! -x $folder/golangci-lint ]]; then
	echo "building golangci-lint $version, which takes a few minutes once" >&2
	GOBIN=$folder GOWORK=off CGO_ENABLED=0 \
		go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi
exec "$folder/golangci-lint" "$@"
