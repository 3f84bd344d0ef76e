# The build flags of tests and lint, which share what they build. Sourced by other scripts.
# shellcheck shell=bash

# Git may refuse to read a clone that belongs to another user, and no test needs the commit in a
# binary. Building everything takes as long as testing it. Without debug information it takes a fifth
# less. Every package that uses go-redis compiles hundreds of methods that it promotes; without
# inlining, that takes half as long. What runs most is inlined nevertheless.
quickly="'-gcflags=all=-l -dwarf=false'"
for pattern in std github.com/yuin/gopher-lua/... github.com/alicebob/miniredis/...; do
	quickly+=" '-gcflags=$pattern=-dwarf=false'"
done
export GOFLAGS="${GOFLAGS:-} -buildvcs=false $quickly"
