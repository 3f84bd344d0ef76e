// Package release holds the modules of this repository to what a release needs. It
// has tests only.
package release
