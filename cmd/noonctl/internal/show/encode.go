package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON prints a value as indented JSON.
func JSON(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	fmt.Fprint(w, escapeJSON(text.String()))
	return err
}

// YAML prints the fields of the JSON of a value, in the same order.
func YAML(w io.Writer, v any) error {
	encoded, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(encoded, &node); err != nil { // JSON is YAML
		return err
	}
	setStyle(&node)
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&node), encoder.Close()); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, Text(strings.TrimSuffix(line, "\n")))
	}
	return nil
}

// setStyle replaces the style of JSON. Only a quoted text may contain escapes.
func setStyle(n *yaml.Node) {
	switch {
	case strings.ContainsFunc(n.Value, func(r rune) bool { return r != '\n' && unprintable(r) }):
		n.Style = yaml.DoubleQuotedStyle
	case len(n.Content) > 0 || n.Tag == "!!str":
		n.Style = 0
	}
	for _, child := range n.Content {
		setStyle(child)
	}
}
