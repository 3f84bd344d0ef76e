package output

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// linked and commit are the version and the commit that scripts/program.sh has set.
var linked, commit string

// A Build is the origin of a program.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // with -dirty for changed files
	Go      string `json:"go"`
}

// Built returns the Build of this program. Without scripts/program.sh, Version is the version of the main
// module, which is (devel) in a clone.
func Built() Build {
	b := Build{Version: cmp.Or(linked, "unknown"), Commit: commit, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(linked, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = cmp.Or(commit, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Commit += "-dirty"
		}
	}
	return b
}

// Version returns the versions of the program and of Go.
func Version() string {
	b := Built()
	return b.Version + " " + b.Go
}
