#!/usr/bin/env bash
# Builds a static program with the Go of GOTOOLCHAIN (default that of go.work). The same commit, version and
# Go version give the same file in any folder, whatever the caller's other settings are.
#
# usage: scripts/program.sh PROGRAM PLATFORM VERSION OUTPUT
#   PROGRAM   a folder of examples/ or cmd/
#   PLATFORM  such as linux/arm64
#   VERSION   what PROGRAM --version prints
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=$1 platform=$2 version=$3 output=$4
source=examples/$program
[[ -d $source ]] || source=cmd/$program
[[ $program =~ ^[a-z]+$ && -f $source/main.go ]] || {
	echo "program.sh: the program is \"$program\"; it must be a folder of examples/ or cmd/ with a main.go" >&2
	exit 2
}
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")

commit=$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null) || commit=

# An empty GOWORK selects the go.work of this clone.
cd "$source" && env CGO_ENABLED=0 GOFLAGS= GOWORK= GOEXPERIMENT= GOFIPS140=off \
	GOOS="${platform%/*}" GOARCH="${platform#*/}" GOAMD64=v1 GOARM64=v8.0 \
	go build -tags nodemo -trimpath -buildvcs=false -mod=readonly \
	-ldflags "-s -w -X github.com/noonlock/noonlock/internal/console/output.linked=$version -X github.com/noonlock/noonlock/internal/console/output.commit=$commit" -o "$output" .
