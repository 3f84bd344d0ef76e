// Package show prints texts, tables, JSON and YAML for people. Names, identities and errors come from other
// programs: characters that could move the cursor, reorder the line or are invisible are escaped.
package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// Text returns a text with its unprintable characters escaped as in Go.
func Text(s string) string {
	return escape(s, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// escapeJSON returns JSON with its unprintable characters escaped as in JSON, except line ends between texts.
func escapeJSON(s string) string {
	return escape(s, func(r rune) string {
		if r == '\n' {
			return "\n"
		}
		var b strings.Builder
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		return b.String()
	})
}

func unprintable(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

func escape(s string, form func(r rune) string) string {
	if !strings.ContainsFunc(s, unprintable) { // bytes that are not UTF-8 count as U+FFFD
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(form(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

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
