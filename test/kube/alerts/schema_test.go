package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A schema is a part of values.schema.json.
type schema struct {
	Type       any
	Ref        string `json:"$ref"`
	Required   []string
	Properties map[string]schema

	Definitions map[string]schema
}

// A value that is null is an error that names it: each value of the charts is required, except lists and
// maps that users fill. With null in place of these, the charts render.
func TestValuesAreRequired(t *testing.T) {
	for _, chart := range [][]string{lottery, cron} {
		t.Run(filepath.Base(chart[0]), func(t *testing.T) { requires(t, chart) })
	}
}

func requires(t *testing.T, chart []string) {
	t.Helper()
	text, err := os.ReadFile(chart[0] + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	values := 0
	var nulls []string
	var check func(where string, s schema)
	check = func(where string, s schema) {
		if len(s.Required) == 0 {
			return // a map of Kubernetes, or of the user
		}
		for name, p := range s.Properties {
			path := strings.TrimPrefix(where+"."+name, ".")
			if of := root.Definitions[strings.TrimPrefix(p.Ref, "#/definitions/")]; of.Type == "object" {
				p = of
			}
			scalar := p.Type != nil && p.Type != "array" && p.Type != "object" && !slices.Contains(types(p.Type), "null")
			if named := slices.Contains([]string{"#/definitions/name", "#/definitions/key", "#/definitions/size", "#/definitions/repository"}, p.Ref); scalar || named || len(p.Required) > 0 {
				values++
				if !slices.Contains(s.Required, name) {
					t.Errorf("%s is not required", path)
				}
			}
			if !slices.Contains(s.Required, name) && path != "command" { // which a sentence refuses
				nulls = append(nulls, path+"=null")
			}
			check(path, p)
		}
	}
	check("", root)
	if values < 60 || len(nulls) < 30 {
		t.Errorf("only %d values were found, and %d that may be null", values, len(nulls))
	}
	all := []string{strings.Join(nulls, ",")}
	if os.Getenv("NOONLOCK_NIGHTLY") != "" {
		all = append(all, nulls...) // each takes helm a second
	}
	for _, sets := range all {
		t.Run(sets, func(t *testing.T) {
			t.Parallel()
			if text := template(t, append(chart, "--set", sets)); strings.Contains(text, "<no value>") || strings.Contains(text, "nil>") {
				t.Error(text)
			}
		})
	}
}

// types returns the types of a schema that has several.
func types(t any) (all []string) {
	several, _ := t.([]any)
	for _, one := range several {
		text, _ := one.(string)
		all = append(all, text)
	}
	return all
}
