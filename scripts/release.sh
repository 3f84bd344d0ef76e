#!/usr/bin/env bash
# Checks whether this commit can be released as VERSION, and prepares the release in dist/VERSION: the
# images, their bills of materials, noonctl for each platform, the charts, the licences and the checksums.
# The same commit gives the same files. It prints the commands that publish all this and the tags of the modules, and runs none of
# them. Those after the tags are also in dist/publish-VERSION.sh.
#
# usage: scripts/release.sh VERSION
# environment:
#   REGISTRY   where the images and charts will be (default ghcr.io/noonlock)
#   PLATFORMS  those of noonctl (default linux, darwin and windows, amd64 and arm64)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

library=github.com/noonlock/noonlock
version=${1:-}
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.work)
export GOTOOLCHAIN
registry=${REGISTRY:-ghcr.io/noonlock}
read -ra platforms <<<"${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"
if [[ ! $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ || $# -gt 1 ]]; then
	echo "release.sh: VERSION is \"$*\"; it must be a version such as v0.1.0" >&2
	exit 2
fi

problems=()
problem() {
	problems+=("$*")
}

# The library is first in go.work. Tools and tests of this repository are not released.
mapfile -t modules < <(go list -m -f '{{.Path}}' | grep -vE "^$library/(internal|test|singleton/sqlonce/sqlcheck)(/|\$)")
[[ ${modules[0]:-} == "$library" ]] || problem "go.work does not name the library first"

tags=()
for module in "${modules[@]}"; do
	folder=${module#"$library"}
	folder=.$folder
	tag=${module#"$library"}/$version
	tag=${tag#/}
	tags+=("$tag")
	at=$(git rev-parse -q --verify "refs/tags/$tag^{commit}") && [[ $at != "$(git rev-parse HEAD)" ]] &&
		problem "the tag $tag exists already, at another commit"
	while read -r required at; do
		[[ $at == "$version" ]] || problem "$folder/go.mod requires $required $at; it must be $version"
	done < <(grep -oE "^(require)?[[:space:]]+${library}[^[:space:]]* v[^[:space:]]+" "$folder/go.mod" | sed -E 's/^require//')
	! grep -qE '^(replace|exclude)\b' "$folder/go.mod" || problem "$folder/go.mod has replace or exclude directives"
done
[[ -n $GOTOOLCHAIN ]] || problem "go.work does not name a toolchain"
grep -qF "$library $version => ./" go.work || problem "go.work does not replace $library $version"
grep -qF "## [${version#v}]" CHANGELOG.md || problem "CHANGELOG.md has no section [${version#v}]"
[[ -z $(git status --porcelain) ]] || problem "the work tree has changes that are not committed"
[[ -n $(git branch --all --list main origin/main --contains HEAD) ]] || problem "the commit is not on the branch main"

echo "$version of $(git log -1 --format='%h %s'):"
printf '  %s\n' "${tags[@]}"
if ((${#problems[@]} > 0)); then
	echo "not ready:"
	printf '  %s\n' "${problems[@]}"
	exit 1
fi

out=dist/$version publish=dist/publish-$version.sh
rm -rf "$out"
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

echo "images:"
programs=(lottery leader noonctl)
for program in "${programs[@]}"; do
	IMAGE_NAME=$registry/$program:$version bash scripts/image.sh "$program" "$out/$program-image.tar"
	bash scripts/sbom.sh "$program" "$out/$program-image.tar"
done

echo "noonctl:"
binaries=()
for platform in "${platforms[@]}"; do
	binary=$out/noonctl-$version-${platform/\//-}
	[[ $platform != windows/* ]] || binary+=.exe
	bash scripts/program.sh noonctl "$platform" "$version" "$binary"
	binaries+=("$binary")
	echo "  $binary"
done
bash scripts/notices.sh "${binaries[@]}" >"$out/THIRD_PARTY_NOTICES.txt"
cp LICENSE "$out"

echo "charts:"
# Their files name the released images and charts. helm package would store the time.
for chart in charts/*; do
	cp -r "$chart" "$scratch"
	name=${chart#*/} chart=$scratch/${chart#*/}
	cp LICENSE "$chart"
	sed -i "s|^version: .*|version: ${version#v}|; s|^appVersion: .*|appVersion: $version|; s|noonlock\.local/|$registry/|" "$chart"/{Chart,values}.yaml
	bash scripts/chart-tool.sh helm-docs --log-level warning --chart-search-root "$chart"
	sed -i -E "s#(helm .*) charts/([a-z]+)#\1 oci://$registry/charts/\2 --version ${version#v}#
		s#\]\((\.\./)+#](https://github.com/noonlock/noonlock/blob/$version/#" "$chart"/{README.md,templates/NOTES.txt}
	(cd "$chart" && sed 's|^/||' .helmignore | xargs rm -r)
	tar --create --sort=name --mtime=@0 --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner --directory "$scratch" "$name" |
		gzip --no-name >"$out/$name-${version#v}.tgz"
	echo "  $out/$name-${version#v}.tgz"
done
(cd "$out" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)

echo "
ready in $out. These commands publish the release. They need your credentials.

Create the tags of all modules. Push that of the library first: the others require it. GitHub starts no workflow
for a push of more than three tags:
"
for tag in "${tags[@]}"; do
	printf "  git tag -a -m 'noonlock %s' %s\n" "$version" "$tag"
done
echo "  git push --atomic origin main ${tags[0]}
  git push --atomic origin ${tags[*]:1}

Push the images and the charts, and draft the release with all files: bash $publish
"
{
	for program in "${programs[@]}"; do
		echo "skopeo copy --all --preserve-digests oci-archive:$out/$program-image.tar docker://$registry/$program:$version"
	done
	for chart in "$out"/*.tgz; do
		echo "helm push $chart oci://$registry/charts"
	done
	echo "gh release create $version --draft --verify-tag --title $version --notes-file <(sed '/^## \[${version#v}\]/,/^## \[/!d; /^## /d' CHANGELOG.md) $out/*"
} | tee "$publish" | sed 's/^/  /'
