package lockcore

import (
	"slices"
	"strings"
)

// ScriptSource is the text of a script as it is sent, for faults that match it.
func ScriptSource(name string) (string, error) {
	s, err := loadScript(name)
	if err != nil {
		return "", err
	}
	return s.source, nil
}

// ScriptFile is the file of a script as it was written, comments and all.
func ScriptFile(name string) (string, error) {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	return string(text), err
}

// ScriptNames are the scripts there are, parts left out.
func ScriptNames() ([]string, error) {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); !strings.HasPrefix(name, "part_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Process is the secret part of a Client's values.
func (c *Client) Process() string { return c.process }
