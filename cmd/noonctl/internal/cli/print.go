package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// The values of --output.
const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
	asName  = "name"
)

// formatsOf is the annotation of --output with its values.
const formatsOf = "formats"

// outputFlag adds the flag --output, for one of the formats, to a command.
func (a *app) outputFlag(cmd *cobra.Command, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(&a.output, "output", "o", asTable, strings.Join(formats[:last], ", ")+" or "+formats[last])
	_ = cmd.Flags().SetAnnotation("output", formatsOf, formats)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) encode(v any) (encoded bool, err error) {
	switch a.output {
	case asJSON:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err := encoder.Encode(v)
		fmt.Fprint(a.out, shownJSON(text.String()))
		return true, errors.Join(err, a.out.Err())
	case asYAML:
		return true, a.writeYAML(v)
	}
	return false, nil
}

// A table is printed in columns that are as wide as their widest cell.
type table struct {
	titles []string
	rows   [][]string
}

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = shownCell(cell)
	}
	t.rows = append(t.rows, cells)
}

// shownCell returns a text for people in one line. Joined errors have one line each.
func shownCell(text string) string { return shown(cmp.Or(strings.ReplaceAll(text, "\n", "; "), "-")) }

// write prints the table. If it is wider than the terminal, it prints one line for each cell
// instead, so that nothing is cut off. columns is the width of the terminal, 0 means no limit.
func (t *table) write(w io.Writer, indent string, columns int, titled bool) {
	lines := t.rows
	if titled {
		lines = append([][]string{t.titles}, t.rows...)
	}
	var text strings.Builder
	aligned := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, cells := range lines {
		fmt.Fprintln(aligned, indent+strings.Join(cells, "\t"))
	}
	_ = aligned.Flush() // a Builder returns no error
	wide := func(line string) bool { return utf8.RuneCountInString(line) > columns }
	if columns > 0 && slices.ContainsFunc(strings.Split(text.String(), "\n"), wide) {
		for _, row := range t.rows {
			fmt.Fprintf(w, "%s%s\n", indent, row[0])
			for i, cell := range row[1:] {
				label := ""
				if title := t.titles[i+1]; title != "" {
					label = strings.ToLower(title) + ": "
				}
				if cell != "-" {
					fmt.Fprintf(w, "%s  %s%s\n", indent, label, cell)
				}
			}
		}
		return
	}
	fmt.Fprint(w, text.String())
}

// nodeOf returns the fields of the JSON of a value, in the same order.
func nodeOf(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var node yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	return node.Content[0], nil
}

// writeYAML prints the fields of the JSON of a value, in the same order.
func (a *app) writeYAML(v any) error {
	node, err := nodeOf(v)
	if err != nil {
		return err
	}
	block(node)
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(a.out, shown(strings.TrimSuffix(line, "\n")))
	}
	return a.out.Err()
}

// block makes the encoder choose the style of a node. Only in quotes, a text may have escapes as in Go.
func block(n *yaml.Node) {
	switch {
	case strings.ContainsFunc(n.Value, func(r rune) bool { return r != '\n' && unprintable(r) }):
		n.Style = yaml.DoubleQuotedStyle
	case len(n.Content) > 0 || n.Tag == "!!str":
		n.Style = 0
	}
	for _, child := range n.Content {
		block(child)
	}
}
