#!/usr/bin/env bash
# Checks whether this commit can be released as VERSION, and prints the tags of all modules.
# With --tag it also creates the tags in this clone. It never pushes.
#
# usage: scripts/release.sh VERSION [--tag]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

library=github.com/noonlock/noonlock
version=${1:-}
mode=${2:-}
if [[ ! $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ || ($mode != "" && $mode != --tag) || $# -gt 2 ]]; then
	echo "usage: scripts/release.sh VERSION [--tag], with a VERSION such as v0.1.0" >&2
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
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || problem "the tag $tag exists already"
	while read -r required at; do
		[[ $at == "$version" ]] || problem "$folder/go.mod requires $required $at; it must be $version"
	done < <(grep -oE "^(require)?[[:space:]]+${library}[^[:space:]]* v[^[:space:]]+" "$folder/go.mod" | sed -E 's/^require//')
	! grep -qE '^(replace|exclude)\b' "$folder/go.mod" || problem "$folder/go.mod has replace or exclude directives"
done
grep -qF "$library $version => ./" go.work || problem "go.work does not replace $library $version"
grep -qF "## [${version#v}]" CHANGELOG.md || problem "CHANGELOG.md has no section [${version#v}]"
[[ -z $(git status --porcelain) ]] || problem "the work tree has changes that are not committed"
[[ $(git branch --show-current) == main ]] || problem "the branch is not main"

echo "$version of $(git log -1 --format='%h %s'):"
printf '  %s\n' "${tags[@]}"
if ((${#problems[@]} > 0)); then
	echo "not ready:"
	printf '  %s\n' "${problems[@]}"
	exit 1
fi
if [[ $mode == --tag ]]; then
	for tag in "${tags[@]}"; do
		git tag -a -m "noonlock $tag" "$tag"
	done
	echo "tagged. Push all tags together, so that no module is published before its requirements:"
else
	echo "ready. Create the tags with --tag, then push them together:"
fi
echo "  git push --atomic origin main ${tags[*]}"
