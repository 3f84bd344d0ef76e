//go:build race

package chaos

// raceFlag builds the binary with -race if the tests are.
const raceFlag = "-race=true"
