package lock

import "io/fs"

// Harmless has the calls that try each command.
var Harmless = harmless

// RightsSource returns the script that tries commands.
func RightsSource(files fs.FS) (string, error) {
	s, err := LoadScripts(files)
	if err != nil {
		return "", err
	}
	return s.rights.Source(), nil
}
