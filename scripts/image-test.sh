#!/usr/bin/env bash
# Builds the lottery's image twice, from copies in two folders, and fails if the digests
# differ. The second build has an empty build cache and takes some minutes. Then the script
# checks that the programs in the image are static, without the demo, and of the right
# architecture, and that scripts/sbom.sh lists their modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

copies=("$scratch/one" "$scratch/a/folder/of/another/depth")
mkdir -p "${copies[@]}" "$scratch/layers"
# The copies include uncommitted changes. The second is a copy of the first, because files in
# the clone may change in the meantime.
tar --create --exclude=./.git --exclude=./dist . | tar --extract --directory "${copies[0]}"
cp -r "${copies[0]}/." "${copies[1]}"

bash "${copies[0]}/scripts/image.sh" lottery "$scratch/one.tar"
GOCACHE=$scratch/cache bash "${copies[1]}/scripts/image.sh" lottery "$scratch/two.tar"
if ! cmp "$scratch/one.tar" "$scratch/two.tar"; then
	echo "image-test failed: two builds of the same sources differ"
	exit 1
fi

tar --extract --directory "$scratch/layers" --file "$scratch/one.tar"
seen=
for blob in "$scratch"/layers/blobs/sha256/*; do
	tar --extract --gzip --to-stdout --file "$blob" lottery >"$scratch/lottery" 2>/dev/null || continue
	# EI_CLASS to e_machine: 62 is amd64, 183 is arm64.
	seen+="$(od --address-radix=n --format=u2 --skip-bytes=18 --read-bytes=2 "$scratch/lottery" | tr -d ' ') "
	built=$(go version -m "$scratch/lottery") || built="go version cannot read it"
	if [[ $built != *$'\tCGO_ENABLED=0'* ]]; then
		echo "image-test failed: the program was not built with CGO_ENABLED=0, so it may not be static: $built"
		exit 1
	fi
	if [[ $built == *miniredis* ]]; then
		echo "image-test failed: the program contains miniredis, which only the demo needs"
		exit 1
	fi
done
[[ $seen == "62 183 " || $seen == "183 62 " ]] || { echo "image-test failed: the programs are of machines $seen; want amd64 (62) and arm64 (183)"; exit 1; }
mkdir "$scratch/sbom"
bash scripts/sbom.sh lottery "$scratch/one.tar" "$scratch/sbom"
for architecture in amd64 arm64; do
	for module in github.com/noonlock/noonlock github.com/redis/go-redis/v9 modernc.org/sqlite std; do
		grep -q "\"name\": \"$module\"" "$scratch/sbom/lottery-$architecture.cdx.json" || { echo "image-test failed: the bill of materials for $architecture does not contain $module"; exit 1; }
	done
done
echo "two builds in two folders, the second with an empty cache, are identical"
