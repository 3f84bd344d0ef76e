// Package operations follows docs/OPERATIONS.md through outages. Its tests take commands, paths and metrics from the
// page, prepare the situation with real replicas of noonctl and lottery, and check what the page promises. They also run
// the small examples. It has tests only.
//
// A test names the row or the section, and the words around the command. So it fails if the page no longer has these
// words, and also if the page has a path that no test takes, or a command, a flag or a metric that does not exist.
package operations
