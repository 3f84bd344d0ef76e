#!/usr/bin/env bash
# Builds a container image of noonctl or an example as an OCI archive. It needs neither Docker nor
# a registry. The image contains static binaries for amd64 and arm64 in one index, without the
# demo of the lottery and its in-process Redis, and the licences of noonlock and the modules in them. The same
# sources, commit and Go version give the same digest in any folder.
#
# usage: scripts/image.sh [PROGRAM [OUTPUT]]
#   PROGRAM  a folder of examples/ or cmd/ (default lottery)
#   OUTPUT   the file to write (default dist/PROGRAM-image.tar)
# environment:
#   IMAGE_NAME       name with registry and tag (default noonlock.local/PROGRAM:dev). The tag is the version
#   IMAGE_PLATFORMS  (default "linux/amd64 linux/arm64")
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=${1:-lottery}
output=${2:-dist/$program-image.tar}
name=${IMAGE_NAME:-noonlock.local/$program:dev}
read -ra platforms <<<"${IMAGE_PLATFORMS:-linux/amd64 linux/arm64}"

((${#platforms[@]} > 0)) || {
	echo "image.sh: IMAGE_PLATFORMS is empty; it must name platforms such as linux/amd64" >&2
	exit 2
}
for platform in "${platforms[@]}"; do
	[[ $platform == linux/amd64 || $platform == linux/arm64 ]] || {
		echo "image.sh: IMAGE_PLATFORMS has \"$platform\"; it must be linux/amd64 or linux/arm64" >&2
		exit 2
	}
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

folders=()
for platform in "${platforms[@]}"; do
	folder=$scratch/${platform#linux/}
	bash scripts/program.sh "$program" "$platform" "${name##*:}" "$folder/$program"
	bash scripts/notices.sh "$folder/$program" >"$folder/THIRD_PARTY_NOTICES.txt"
	cp LICENSE "$folder"
	folders+=("$platform=$folder")
done

oci=org.opencontainers.image
labels=(--label "$oci.title=$program" --label "$oci.version=${name##*:}" --label "$oci.licenses=Apache-2.0"
	--label "$oci.source=https://github.com/noonlock/noonlock")
# Sources that were unpacked from an archive have no commit.
if [[ -e .git ]]; then
	[[ -z $(git status --porcelain) ]] && changed='' || changed=-dirty
	labels+=(--label "$oci.revision=$(git rev-parse HEAD)$changed")
fi

mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")
(cd internal/build/ociimage && env CGO_ENABLED=0 GOFLAGS= GOWORK= go run -trimpath -buildvcs=false . \
	--output "$output" --name "$name" --entrypoint "/$program" "${labels[@]}" "${folders[@]}")
echo "  built with   $(go env GOVERSION)"
