// Package release tests that the modules of this repository can be released. It contains
// only tests: they publish the tree on a local module proxy, as if it were tagged, and
// install each module from there.
package release
