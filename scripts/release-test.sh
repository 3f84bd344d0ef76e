#!/usr/bin/env bash
# Prepares a release of a clone, and checks its artefacts: the programs in the images are static, without the
# lottery's demo, and of the right architecture, and the bills of materials list their modules. It runs
# each documented example of noonctl, and the lottery and leader, with nothing but the files of their
# images. By day, noonctl is built only for this platform. With NOONLOCK_NIGHTLY=1, it is built for each one, and
# each image is built again, in a clone in another folder and with an empty build cache. That takes
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

version=$(sed -n 's|^replace github.com/noonlock/noonlock \(v[^ ]*\) => ./$|\1|p' go.work)
[[ -n $version ]] || fail "go.work does not replace the library"
host=linux/$(go env GOARCH)

# The clone is one commit of the work tree, with a section of the release in CHANGELOG.md.
clone=$scratch/one
release=$clone/dist/$version
mkdir "$clone"
tar --create --exclude=./.git --exclude=./dist . | tar --extract --directory "$clone"
sed -i "0,/^## .*/s//## [${version#v}] - 2026-01-01/" "$clone/CHANGELOG.md"
git -C "$clone" init --quiet --initial-branch=main
git -C "$clone" add --all
git -C "$clone" -c user.name=test -c user.email=test@example.com -c commit.gpgsign=false commit --quiet --message release

# refuses TEXT VERSION: the release is refused for this reason.
refuses() {
	local said
	! said=$(bash "$clone/scripts/release.sh" "$2" 2>&1) && [[ $said == *"$1"* ]] || fail "release.sh $2 says \"$said\"; want \"$1\""
}
refuses "must be a version such as v0.1.0" "${version#v}"
refuses "CHANGELOG.md has no section [0.99.0]" v0.99.0
touch "$clone/new.go"
refuses "changes that are not committed" "$version"
rm "$clone/new.go"

said=$([[ -n ${NOONLOCK_NIGHTLY:-} ]] || export PLATFORMS=$host; bash "$clone/scripts/release.sh" "$version") || fail "the release: $said"
echo "$said"
for wanted in "git push --atomic origin main $version " "helm push dist/$version/noonctl-${version#v}.tgz" "gh release create $version"; do
	[[ $said == *"$wanted"* ]] || fail "release.sh does not print the command $wanted"
done
(cd "$release" && sha256sum --check --quiet --strict SHA256SUMS) || fail "SHA256SUMS is wrong"
said=$("$release/noonctl-$version-${host/\//-}" --version)
[[ $said == "noonctl version $version go"* ]] || fail "noonctl --version prints $said"
grep -q 'redis/go-redis/v9@.*LICENSE' "$release/THIRD_PARTY_NOTICES.txt" || fail "THIRD_PARTY_NOTICES.txt has no licence of go-redis"
for chart in lottery:firstTry=true noonctl:command[0]=a,elect.enabled=true,redis.url=redis://a,image.repository=a,image.tag=b; do
	package=$release/${chart%%:*}-${version#v}.tgz
	said=$(bash scripts/chart-tool.sh helm template demo "$package" --set "${chart#*:}")
	[[ $said == *"ghcr.io/noonlock/${chart%%:*}:$version"* && $said != *noonlock.local* ]] || fail "$package has other images: $(grep image: <<<"$said")"
done
if [[ -n ${NOONLOCK_NIGHTLY:-} ]]; then
	git clone --quiet "$clone" "$scratch/a/folder/of/another/depth"
fi

# check PROGRAM MODULE...: the program is built from these modules, and from others.
check() {
	local program=$1 folder=$scratch/images/$1 archive=$release/$1-image.tar blob seen='' built architecture module machine
	shift
	mkdir -p "$folder/layers"
	if [[ -n ${NOONLOCK_NIGHTLY:-} ]]; then
		GOCACHE=$scratch/cache IMAGE_NAME=ghcr.io/noonlock/$program:$version bash "$scratch/a/folder/of/another/depth/scripts/image.sh" "$program" "$folder/two.tar"
		cmp "$archive" "$folder/two.tar" || fail "two builds of $program from the same sources differ"
	fi

	tar --extract --directory "$folder/layers" --file "$archive"
	grep -rqF "\"org.opencontainers.image.revision\":\"$(git -C "$clone" rev-parse HEAD)\"" "$folder/layers" || fail "the image of $program does not name its commit"
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

	for architecture in amd64 arm64; do
		for module in github.com/noonlock/noonlock github.com/redis/go-redis/v9 std "$@"; do
			grep -q "\"name\": \"$module\"" "$release/$program-$architecture.cdx.json" || fail "the bill of materials of $program for $architecture does not contain $module"
		done
		grep -q '"id": "BSD-2-Clause"' "$release/$program-$architecture.cdx.json" || fail "the bill of materials of $program for $architecture names no licence of go-redis"
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
	done < <(awk '/^Examples:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^    noonctl / { sub(/^ +/, ""); print }' docs/NOONCTL.md)
	((n > 15)) || fail "docs/NOONCTL.md has $n examples; want more than 15"
	echo "$n examples of noonctl run in its image"
}

check lottery modernc.org/sqlite
check leader
check noonctl github.com/spf13/cobra

for program in lottery leader noonctl; do
	certificates "$program"
	ends 0 "" "$program" --help
	[[ $program == leader ]] || ends 0 "$program version $version go" "$program" --version
	[[ -s $scratch/images/$program/root/THIRD_PARTY_NOTICES.txt ]] || fail "the image of $program has no licences of others"
done
examples
for zone in Europe/Paris Asia/Shanghai America/New_York UTC; do
	ends 127 nothing noonctl cron job "0 3 * * *" --time-zone "$zone" -- nothing
	ends 3 "" lottery verify --time-zone "$zone" --redis redis://127.0.0.1:1 --database postgres://nobody@127.0.0.1:1/none
done
ends 64 "such as Europe/Paris" noonctl cron job "0 3 * * *" --time-zone Mars/North -- nothing
[[ -z ${NOONLOCK_NIGHTLY:-} ]] || echo "for each image, two builds in two folders, the second with an empty cache, are identical"
