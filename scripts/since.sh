# The commit that changes are compared with. Sourced by other scripts, in the root of the repository.
# shellcheck shell=bash

# since prints the merge base with origin/main. On the main branch itself it prints the last commit of a day before.
# It prints nothing if there is none.
since() {
	local base
	base=$(git merge-base HEAD origin/main 2>/dev/null) && [[ $base != "$(git rev-parse HEAD)" ]] ||
		base=$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 86400))" HEAD)
	echo "$base"
}

# changed PATH...: there is a change since that commit, or make nightly runs, which checks everything.
changed() {
	local base
	base=$(since)
	[[ -n ${NOONLOCK_NIGHTLY:-} || -z $base || -n $(git status --porcelain -- "$@") ]] || ! git diff --quiet "$base" -- "$@"
}
