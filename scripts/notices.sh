#!/usr/bin/env bash
# Prints the licences and notices of all modules that are linked into programs, and those of Go. They are
# copied from the modules.
#
# usage: scripts/notices.sh BINARY...
set -euo pipefail

# text MODULE FOLDER: prints each file with a licence or a notice of a module.
text() {
	local file found=
	while read -r file; do
		found=yes
		printf '\n---- %s, %s ----\n\n' "$1" "${file#"$2/"}"
		cat "$file"
	done < <(find "$2" -type f -not -path '*/testdata/*' -not -path '*/src/cmd/*' -not -name '*.go' -regextype posix-extended \
		-iregex '.*/([^/]*-)?(licen[cs]e|copying|notice|patents)([-.][^/]*)?' | LC_ALL=C sort)
	[[ -n $found ]] || { echo "notices.sh: $1 has no file with a licence" >&2; return 1; }
}

echo "The programs of noonlock contain these modules of others."
text "$(go env GOVERSION)" "$(go env GOROOT)"
for binary in "$@"; do
	go version -m "$binary" | awk '$1 == "dep" { print $2 "@" $3 }'
done | { grep -v '^github.com/noonlock/' || true; } | LC_ALL=C sort -u | while read -r module; do
	folder=$(GOWORK=off GOFLAGS=-mod=mod go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	text "$module" "$folder"
done
