#!/usr/bin/env bash
# Rehearses a release as CONTRIBUTING.md describes it. A maintainer prepares it in a clone, and pushes the
# tags with the printed commands. The forge is a bare repository, and sends the events that GitHub sends. For the event
# that starts release.yml, its steps run in a checkout as actions/checkout makes it; only the programs
# that publish are replaced. Skopeo copies the images to a folder instead of a registry. The files of the clone and of the workflow must not differ.
#
# Then it checks the files: the programs in the images are static, without the lottery's demo, of the
# right architecture and the Go of go.work, and the bills of materials list their modules. It runs
# each documented example of noonctl, and the lottery and leader, with nothing but the files of their
# images. By day, all programs are built only for this platform. With NOONLOCK_NIGHTLY=1, they are built for each one, and
# the workflow has an empty build cache. That takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

fail() {
	echo "release-test failed: $*"
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
architectures=(amd64 arm64)
if [[ -z ${NOONLOCK_NIGHTLY:-} ]]; then
	export PLATFORMS=$host IMAGE_PLATFORMS=$host
	architectures=("${host#linux/}")
fi

# The release is one commit of the work tree, with a section of the release in CHANGELOG.md.
mkdir "$scratch/source"
tar --create --exclude=./.git --exclude=./dist . | tar --extract --directory "$scratch/source"
sed -i "0,/^## .*/s//## [${version#v}] - 2026-01-01/" "$scratch/source/CHANGELOG.md"
export GIT_CONFIG_GLOBAL=$scratch/gitconfig
git config --global user.name test
git config --global user.email test@example.com
git -C "$scratch/source" init --quiet --initial-branch=main
git -C "$scratch/source" add --all
git -C "$scratch/source" commit --quiet --message release
forge=$scratch/forge.git clone=$scratch/clone
git clone --quiet --bare "$scratch/source" "$forge"
git clone --quiet "$forge" "$clone"

# GitHub sends no event for a push of more than three tags.
cat >"$forge/hooks/post-receive" <<-'HOOK'
	#!/bin/sh
	pushed=$(cut -d ' ' -f 3)
	[ "$(echo "$pushed" | grep -c ^refs/tags/)" -gt 3 ] || echo "$pushed" >>events
HOOK
chmod +x "$forge/hooks/post-receive"

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

# The publishing programs print how they are called. The files that they are given exist.
skopeo=$(command -v skopeo) || fail "skopeo is not installed; make test installs it"
export skopeo published=$scratch/images-published
mkdir "$scratch/bin" "$published"
cat >"$scratch/bin/publisher" <<-'PUBLISHER'
	#!/bin/bash
	echo "${0##*/} $*"
	for argument; do
		file=${argument#oci-archive:}
		[[ $file != dist/* || -f $file ]] || exit 1
		[[ $file != /dev/fd/* ]] || grep . "$file" || exit 1
	done
	if [[ ${0##*/} == skopeo && $1 == copy ]]; then
		name=${!#} name=${name##*/}
		"$skopeo" "${@:1:$#-1}" "dir:$published/${name%:*}" || exit 1
	fi
PUBLISHER
chmod +x "$scratch/bin/publisher"
for name in skopeo helm gh; do
	ln -s publisher "$scratch/bin/$name"
done

# workflow REF: runs release.yml for a push of this reference.
workflow() {
	local file=.github/workflows/release.yml job=$scratch/job/of/another/depth step
	git init --quiet "$job"
	cd "$job"
	git fetch --quiet --no-tags "$forge" '+refs/heads/*:refs/remotes/origin/*' '+refs/tags/*:refs/tags/*'
	git checkout --quiet --force "$1"
	sed -n '/^    env:/,/^    steps:/s/^      //p' "$file" |
		sed "s|\${{ github.repository_owner }}|noonlock|; s|\${{ github.ref_name }}|${1#refs/tags/}|; s|\${{ github.token }}|secret|; s|: |=|" >../env
	! grep -F '${{' ../env || fail "$file uses an expression that this test does not know"
	awk '/^      - run: / { step = "../step" ++n; if ($3 != "|") print substr($0, 14) >step; next }
		/^      - / { step = "" } step && /^          / { print substr($0, 11) >step }' "$file"
	for step in ../step*; do
		env GITHUB_ACTOR=test GOTOOLCHAIN=local PATH="$scratch/bin:$PATH" $(<../env) ${NOONLOCK_NIGHTLY:+GOCACHE="$scratch/cache"} bash -e "$step" || return
	done
}

said=$(make --no-print-directory --directory "$clone" release VERSION="$version") || fail "the release: $said"
echo "$said"
mapfile -t commands < <(sed -n 's/^  \(git .*\)/\1/p' <<<"$said")
for command in "${commands[@]}"; do
	(cd "$clone" && eval "$command" 2>&1) || fail "$command"
	[[ -s $forge/events ]] || continue
	while read -r ref; do
		# The * of a filter does not match a slash.
		filter=$(sed -n 's/^    tags: \["\(.*\)"\]$/\1/p' .github/workflows/release.yml)
		[[ $ref =~ ^refs/tags/${filter//\*/[^/]*}$ ]] || continue
		(workflow "$ref") >"$scratch/published" 2>&1 || fail "the workflow for $ref: $(<"$scratch/published")"
	done <"$forge/events"
	rm "$forge/events"
done
for wanted in "skopeo copy --all --preserve-digests oci-archive:dist/$version/noonctl-image.tar docker://ghcr.io/noonlock/noonctl:$version" \
	"helm push dist/$version/noonctl-${version#v}.tgz oci://ghcr.io/noonlock/charts" "gh release create $version --draft" "### Added"; do
	grep -qF -e "$wanted" "$scratch/published" || fail "the workflow did not run $wanted: $(cat "$scratch/published")"
done
for program in lottery leader noonctl; do
	digest=$(sha256sum "$published/$program/manifest.json")
	[[ $said == *"sha256:${digest%% *}"* ]] || fail "the image of $program is published as ${digest%% *}, not with the digest of its archive: $said"
done
[[ $(git -C "$forge" tag | wc -l) == $(grep -c '^| `github.com' CONTRIBUTING.md) ]] || fail "the tags are not those of CONTRIBUTING.md"
release=$scratch/job/of/another/depth/dist/$version
diff --recursive "$clone/dist" "$release/.." || fail "two releases of the same commit differ"

toolchain=$(sed -n 's/^toolchain //p' go.work)
(cd "$release" && sha256sum --check --quiet --strict SHA256SUMS) || fail "SHA256SUMS is wrong"
said=$("$release/noonctl-$version-${host/\//-}" --version)
[[ $said == "noonctl version $version $toolchain"* ]] || fail "noonctl --version prints $said; want $toolchain"
grep -q 'redis/go-redis/v9@.*LICENSE' "$release/THIRD_PARTY_NOTICES.txt" || fail "THIRD_PARTY_NOTICES.txt has no licence of go-redis"
cmp LICENSE "$release/LICENSE"
for chart in lottery:firstTry=true noonctl:command[0]=a,elect.enabled=true,redis.url=redis://a,image.repository=a,image.tag=b; do
	name=${chart%%:*} package=$release/${chart%%:*}-${version#v}.tgz
	said=$(bash scripts/chart-tool.sh helm template demo "$package" --set "${chart#*:}")
	tar --extract --gzip --directory "$scratch" --file "$package"
	cmp LICENSE "$scratch/$name/LICENSE"
	said+=$(cat "$scratch/$name/"{README.md,templates/NOTES.txt})
	grep -qF "(charts/$name/README.md)" README.md || fail "README.md does not link to the chart $name"
	[[ $said == *"ghcr.io/noonlock/$name:$version"* && $said == *" oci://ghcr.io/noonlock/charts/$name --version ${version#v} "* ]] ||
		fail "$package does not name the released image and chart: $said"
	! grep -E 'noonlock\.local|make image|helm .* charts/|\]\(\.\.|:dev' <<<"$said" || fail "$package has names of a clone"
done

# check PROGRAM MODULE...: the program is built from these modules, and from others.
check() {
	local program=$1 folder=$scratch/images/$1 archive=$release/$1-image.tar blob seen='' built architecture module machine bill license
	shift
	mkdir -p "$folder/layers"
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
		[[ $built == *": $toolchain"* ]] || fail "$program was not built with $toolchain: $built"
		[[ $built != *miniredis* ]] || fail "$program contains miniredis, which only tests and the lottery's demo need"
	done
	[[ ${#architectures[@]} == 1 && $seen == "$native " || $seen == "62 183 " || $seen == "183 62 " ]] ||
		fail "the binaries of $program are of machines $seen; want amd64 (62) and arm64 (183), or by day $native"

	for architecture in "${architectures[@]}"; do
		bill=$release/$program-$architecture.cdx.json
		for module in github.com/noonlock/noonlock github.com/redis/go-redis/v9 std "$@"; do
			grep -q "\"name\": \"$module\"" "$bill" || fail "$bill does not contain $module"
		done
		[[ $(grep -o 'goarch=[a-z0-9]*' "$bill" | sort -u) == "goarch=$architecture" ]] || fail "$bill is not about $architecture"
		grep -qF "/noonlock/noonlock@$version?" "$bill" && ! grep -E '\(devel\)|"timestamp"' "$bill" || fail "$bill does not name the release"
		for license in BSD-2-Clause BSD-3-Clause Apache-2.0; do
			grep -q "\"id\": \"$license\"" "$bill" || fail "$bill names no licence $license"
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

# examples runs the examples of docs/NOONCTL.md. The commands in them, and sh, are not in the image, so a right
# example ends with 127, or with 69 because no server answers, or does not end. next needs no server.
examples() {
	local line arguments n=0
	install -D --mode=644 <(echo "a password of the page") "$scratch/images/noonctl/root/run/secrets/token"
	install -D --mode=644 <(echo "backup @daily ./backup.sh") "$scratch/images/noonctl/root/etc/noonctl/crontab"
	while read -r line; do
		eval "arguments=(${line#noonctl })"
		case $line in
		*--pod-label*) ends 64 "does not run in a pod" noonctl "${arguments[@]}" ;;
		*" -- "* | *" cron --file "*) ends 127 "" noonctl "${arguments[@]}" ;;
		*" next "*) ends 0 "" noonctl "${arguments[@]}" ;;
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
	cmp LICENSE "$scratch/images/$program/root/LICENSE"
	[[ -s $scratch/images/$program/root/THIRD_PARTY_NOTICES.txt ]] || fail "the image of $program has no licences of others"
done
examples
for zone in Europe/Paris Asia/Shanghai America/New_York UTC; do
	ends 127 nothing noonctl cron job "0 3 * * *" --time-zone "$zone" -- nothing
	ends 3 "" lottery verify --time-zone "$zone" --redis redis://127.0.0.1:1 --database mysql://nobody@127.0.0.1:1/none
done
ends 64 "such as Europe/Paris" noonctl cron job "0 3 * * *" --time-zone Mars/North -- nothing
