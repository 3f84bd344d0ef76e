# The modules of go.work. Sourced by other scripts, in the root of the repository.
# shellcheck shell=bash

# modules prints their folders, one per line.
modules() {
	go list -m -f '{{.Dir}}'
}

# alone FOLDER COMMAND... runs a command in the module of FOLDER without go.work. The
# command's last argument is a copy of go.mod, for -modfile, that replaces the modules of
# go.work with those of this clone.
alone() (
	cd "$1" || exit 1
	shift
	local folder path dir here
	folder=$(mktemp -d) || exit 1
	trap 'rm -rf "$folder"' EXIT
	cp go.mod "$folder/" || exit 1
	[[ ! -e go.sum ]] || cp go.sum "$folder/" || exit 1
	here=$(GOWORK=off go list -m) || exit 1
	while read -r path dir; do
		[[ $path == "$here" ]] || go mod edit -replace "$path=$dir" "$folder/go.mod" || exit 1
	done < <(go list -m -f '{{.Path}} {{.Dir}}')
	GOWORK=off "$@" "$folder/go.mod"
)
