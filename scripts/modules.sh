# The modules of go.work. Sourced by other scripts, in the root of the repository.
# shellcheck shell=bash

# modules prints their folders, one a line.
modules() {
	go list -m -f '{{.Dir}}'
}

# alone FOLDER COMMAND...: runs a command in the module of FOLDER as its own go.mod
# describes it, without go.work. The command finds in $MODFILE a copy of go.mod in
# which the modules of this repository, published or not, are those of this clone.
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
	export MODFILE=$folder/go.mod GOWORK=off
	"$@"
)
