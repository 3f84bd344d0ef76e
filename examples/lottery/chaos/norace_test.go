//go:build !race

package chaos

const raceFlag = "-race=false"
