#!/usr/bin/env bash
# Builds the lottery's image twice, from copies in two folders, the second with an
# empty build cache, and fails if the digests differ. Then it looks into the image: the
# programs must be static and of the right architecture. The second build takes some
# minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

copies=("$scratch/one" "$scratch/a/folder/of/another/depth")
mkdir -p "${copies[@]}" "$scratch/layers"
# What is under way counts too, so these are no checkouts; one copy of the other, as
# somebody may be writing.
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
	built=$(go version -m "$scratch/lottery") || built="nothing that go version can read"
	if [[ $built != *$'\tCGO_ENABLED=0'* ]]; then
		echo "image-test failed: the program does not say that it was built without cgo, so it may not be static: $built"
		exit 1
	fi
done
[[ $seen == "62 183 " || $seen == "183 62 " ]] || { echo "image-test failed: the programs are of machines $seen; want amd64 (62) and arm64 (183)"; exit 1; }
echo "two builds in two folders, the second with an empty cache, are the same"
