// Package release holds the modules of this repository to what a release needs. It
// has tests only: they publish the tree on a module proxy of their own, as if it were
// tagged, and install each module from there.
package release
