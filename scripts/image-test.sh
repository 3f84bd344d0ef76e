#!/usr/bin/env bash
# Builds each image, and checks that the programs in it are static, without the lottery's demo, and of
# the right architecture, and that scripts/sbom.sh lists their modules. It runs each documented
# example of noonctl, and the lottery and leader, with nothing but the files of their images. With NOONLOCK_NIGHTLY=1, it
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

case $(uname -m) in
x86_64) native=62 ;;
aarch64) native=183 ;;
*) fail "this machine is a $(uname -m), for which there is no image; the test must run on one that has" ;;
esac

copies=("$scratch/one" "$scratch/a/folder/of/another/depth")
mkdir -p "${copies[@]}"
# The copies include uncommitted changes. The second is a copy of the first, because files in
# the clone may change in the meantime.
tar --create --exclude=./.git --exclude=./dist . | tar --extract --directory "${copies[0]}"
cp -r "${copies[0]}/." "${copies[1]}"

# check PROGRAM MODULE...: the program is built from these modules, and from others.
check() {
	local program=$1 folder=$scratch/images/$1 blob seen='' built architecture module machine
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
		# e_machine: 62 is amd64, 183 is arm64.
		machine=$(od --address-radix=n --format=u2 --skip-bytes=18 --read-bytes=2 "$folder/program" | tr -d ' ')
		seen+="$machine "
		if [[ $machine == "$native" ]]; then
			mkdir -p "$folder/root"
			tar --extract --gzip --directory "$folder/root" --file "$blob"
		fi
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

# inside PROGRAM ARGUMENT...: runs the program for at most $seconds with the files, the environment and
# the user of its image. No Redis server answers.
inside() {
	local program=$1 change=("$(command -v chroot)" --userspec=65532:65532 --groups=65532)
	shift
	((EUID == 0)) || change=("$(command -v unshare)" --user --map-root-user "$(command -v chroot)")
	timeout "${seconds:-10}" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp NOONLOCK_REDIS=redis://127.0.0.1:1 \
		"${change[@]}" "$scratch/images/$program/root" "/$program" "$@" </dev/null
}

# ends CODES TEXT PROGRAM ARGUMENT...: inside its image, the program ends with one of the codes, and its
# output contains the text.
ends() {
	local codes=$1 text=$2 code=0 said
	shift 2
	said=$(inside "$@" 2>&1) || code=$?
	[[ " $codes " == *" $code "* && $said == *"$text"* ]] || fail "$* ended in its image with $code; want $codes and \"$text\": $said"
}

# certificates PROGRAM: the image has the public authorities.
certificates() {
	local n
	n=$(grep -c '^-----BEGIN CERTIFICATE-----' "$scratch/images/$1/root/etc/ssl/certs/ca-certificates.crt")
	((n > 100)) || fail "the image of $1 has $n certificates of authorities; want more than 100"
}

# examples runs the examples of docs/NOONCTL.md. The commands in them are not in the image, so a right
# example ends with 127, or with 69 because no server answers, or does not end.
examples() {
	local line arguments n=0
	install -D --mode=644 <(echo "a password of the page") "$scratch/images/noonctl/root/run/secrets/token"
	while read -r line; do
		eval "arguments=(${line#noonctl })"
		case $line in
		*--pod-label*) ends 64 "does not run in a pod" noonctl "${arguments[@]}" ;;
		*" -- "*) ends 127 "" noonctl "${arguments[@]}" ;;
		*" elect "* | *" serve"*) seconds=2 ends 124 "" noonctl "${arguments[@]}" ;;
		*) ends 69 "" noonctl "${arguments[@]}" ;;
		esac
		n=$((n + 1))
	done < <(awk '/^Examples:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^    noonctl / { sub(/^ +/, ""); print }' "${copies[0]}/docs/NOONCTL.md")
	((n > 15)) || fail "docs/NOONCTL.md has $n examples; want more than 15"
	echo "$n examples of noonctl run in its image"
}

check lottery modernc.org/sqlite
check leader
check noonctl github.com/spf13/cobra

for program in lottery leader noonctl; do
	certificates "$program"
	ends 0 "" "$program" --help
done
examples
for zone in Europe/Paris Asia/Shanghai America/New_York UTC; do
	ends 127 nothing noonctl cron job "0 3 * * *" --time-zone "$zone" -- nothing
	ends 3 "" lottery verify --time-zone "$zone" --redis redis://127.0.0.1:1 --database postgres://nobody@127.0.0.1:1/none
done
ends 64 "such as Europe/Paris" noonctl cron job "0 3 * * *" --time-zone Mars/North -- nothing
[[ -z ${NOONLOCK_NIGHTLY:-} ]] || echo "for each image, two builds in two folders, the second with an empty cache, are identical"
