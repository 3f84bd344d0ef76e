// Command pictures draws the SVG files of docs/. Run it with "go run ./docs/pictures"
// from the root of the repository; a test fails while a file differs from its drawing.
//
// The pictures use system fonts and two palettes. A browser chooses the dark one by
// prefers-color-scheme.
package main
