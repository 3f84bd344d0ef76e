//go:build race

package chaos

// raceFlag has the binary built as the tests are.
const raceFlag = "-race=true"
