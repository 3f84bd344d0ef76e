#!/usr/bin/env bash
# Writes a software bill of materials (CycloneDX, JSON) for each platform of an image that
# scripts/image.sh has built. It lists the Go modules in the program, with their hashes, and
# the version of Go, and their licences. It reads the program in the image, not the sources.
#
# usage: scripts/sbom.sh [PROGRAM [ARCHIVE [FOLDER]]]
#   PROGRAM  the program in the image (default lottery)
#   ARCHIVE  the image (default dist/PROGRAM-image.tar)
#   FOLDER   where PROGRAM-ARCHITECTURE.cdx.json are written (default that of the archive)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=${1:-lottery}
archive=${2:-dist/$program-image.tar}
folder=${3:-$(dirname "$archive")}
[[ -f $archive ]] || { echo "sbom.sh: there is no image $archive; make image PROGRAM=$program builds it" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

tool=$(bash scripts/chart-tool.sh --path cyclonedx-gomod)
mkdir "$scratch/image"
tar --extract --directory "$scratch/image" --file "$archive"
version=$(sed -n 's/.*"org.opencontainers.image.ref.name": *"\([^"]*:\)\?\([^"]*\)".*/\2/p' "$scratch/image/index.json" | head -n 1)
found=
for blob in "$scratch"/image/blobs/sha256/*; do
	tar --extract --gzip --directory "$scratch" --file "$blob" "$program" 2>/dev/null || continue
	architecture=$(go version -m "$scratch/$program" | sed -n 's/.*\tGOARCH=//p')
	found=$folder/$program-$architecture.cdx.json
	# The modules are in the cache since the build, which has verified them. No proxy is asked for those of this clone.
	GOOS=linux GOARCH=$architecture GOPROXY=off GONOSUMDB='*' "$tool" bin -json -std -licenses -noserial -notimestamp -version "$version" \
		-output "$scratch/bill" "$scratch/$program" 2>"$scratch/said" || { cat "$scratch/said" >&2; exit 1; }
	sed -E "s/\(devel\)/$version/
		s|^( *)\"purl\": \"pkg:golang/github.com/noonlock/|\1\"licenses\": [{\"license\": {\"id\": \"Apache-2.0\"}}],\n&|
		s|^( *)\"purl\": \"pkg:golang/std@|\1\"licenses\": [{\"license\": {\"id\": \"BSD-3-Clause\"}}],\n&|" "$scratch/bill" >"$found"
	echo "$found"
done
[[ -n $found ]] || { echo "sbom.sh: $archive does not contain the program $program" >&2; exit 1; }
