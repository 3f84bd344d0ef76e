package output

import (
	"cmp"
	"runtime/debug"
)

// linked is the version of a program that scripts/program.sh has built.
var linked string

// Version returns the version of the program and that of Go. Without scripts/program.sh, it is the version of
// the main module: (devel) if it was built in a clone.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(linked, "unknown")
	}
	return cmp.Or(linked, info.Main.Version, "(devel)") + " " + info.GoVersion
}
