// Package operations follows docs/OPERATIONS.md to the letter. Its tests take each command, path and
// metric from the page, prepare the situation with real replicas of noonctl and lottery, and check
// what the page promises. They also run the small examples. It has tests only.
//
// A test names the row or the section, and the words around the command. So it fails if the page no
// longer has these words, and also if the page has a command, a path or a metric that no test takes.
package operations
