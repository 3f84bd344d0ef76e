#!/usr/bin/env bash
# Builds each image, and checks that the programs in it are static, without the lottery's demo, and of
# the right architecture, and that scripts/sbom.sh lists their modules. With NOONLOCK_NIGHTLY=1, it
# builds each image again, from a copy in another folder and with an empty build cache, which takes
# some minutes, and fails if the digests differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

fail() {
	echo "image-test failed: $*"
	exit 1
}

copies=("$scratch/one" "$scratch/a/folder/of/another/depth")
mkdir -p "${copies[@]}"
# The copies include uncommitted changes. The second is a copy of the first, because files in
# the clone may change in the meantime.
tar --create --exclude=./.git --exclude=./dist . | tar --extract --directory "${copies[0]}"
cp -r "${copies[0]}/." "${copies[1]}"

# check PROGRAM MODULE...: the program is built from these modules, and from others.
check() {
	local program=$1 folder=$scratch/images/$1 blob seen='' built architecture module
	shift
	mkdir -p "$folder/layers" "$folder/sbom"
	bash "${copies[0]}/scripts/image.sh" "$program" "$folder/one.tar"
	if [[ -n ${NOONLOCK_NIGHTLY:-} ]]; then
		GOCACHE=$scratch/cache bash "${copies[1]}/scripts/image.sh" "$program" "$folder/two.tar"
		cmp "$folder/one.tar" "$folder/two.tar" || fail "two builds of $program from the same sources differ"
	fi

	tar --extract --directory "$folder/layers" --file "$folder/one.tar"
	for blob in "$folder"/layers/blobs/sha256/*; do
		tar --extract --gzip --to-stdout --file "$blob" "$program" >"$folder/program" 2>/dev/null || continue
		# EI_CLASS to e_machine: 62 is amd64, 183 is arm64.
		seen+="$(od --address-radix=n --format=u2 --skip-bytes=18 --read-bytes=2 "$folder/program" | tr -d ' ') "
		built=$(go version -m "$folder/program") || built="go version cannot read it"
		[[ $built == *$'\tCGO_ENABLED=0'* ]] || fail "$program was not built with CGO_ENABLED=0, so it may not be static: $built"
		[[ $built != *miniredis* ]] || fail "$program contains miniredis, which only tests and the lottery's demo need"
	done
	[[ $seen == "62 183 " || $seen == "183 62 " ]] || fail "the binaries of $program are of machines $seen; want amd64 (62) and arm64 (183)"

	bash scripts/sbom.sh "$program" "$folder/one.tar" "$folder/sbom"
	for architecture in amd64 arm64; do
		for module in github.com/noonlock/noonlock github.com/redis/go-redis/v9 std "$@"; do
			grep -q "\"name\": \"$module\"" "$folder/sbom/$program-$architecture.cdx.json" || fail "the bill of materials of $program for $architecture does not contain $module"
		done
	done
}

check lottery modernc.org/sqlite
check leader
check noonctl github.com/spf13/cobra
[[ -z ${NOONLOCK_NIGHTLY:-} ]] || echo "for each image, two builds in two folders, the second with an empty cache, are identical"
