// Package lua contains the scripts of mutexes, of locks with owners, and of their queue. A lock with owners is a
// ReentrantMutex, an RWMutex or a Semaphore.
//
// Each file mutex_*.lua and owned_*.lua is one request. Its header lists the keys, the arguments, the answers, and why
// running it twice is safe. A line "--@include x" stands for the file part_x.lua of this package or of internal/wire.
// internal/lock sends the scripts. It also has the scripts of operators and of quorums, which include parts of this
// package.
package lua

import "embed"

// Files are the scripts and their parts.
//
//go:embed *.lua
var Files embed.FS
