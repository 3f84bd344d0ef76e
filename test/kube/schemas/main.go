// Schemas writes the JSON schemas for kubeconform, so that it need not download them. The schemas
// of Kubernetes' own kinds come from the API description in the k8s.io/kubernetes module, all
// others from their CustomResourceDefinitions.
//
//	schemas FOLDER swagger.json [CRD.yaml...]
//
// The name of a file consists of kind, first part of the group, and version, in lower case:
// deployment-apps-v1.json. Objects are closed, so that misspelt fields are errors.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("there must be a folder to write to and a swagger.json, and there may be CRDs")
	}
	all, err := kubernetes(args[1])
	if err != nil {
		return err
	}
	for _, file := range args[2:] {
		if err := custom(file, all); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for k, schema := range all {
		content, err := json.Marshal(schema)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], k.file()), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d schemas\n", len(all))
	return nil
}

// kind identifies the kind of an object.
type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (k kind) file() string {
	parts := []string{k.Kind}
	if k.Group != "" {
		first, _, _ := strings.Cut(k.Group, ".")
		parts = append(parts, first)
	}
	return strings.ToLower(strings.Join(append(parts, k.Version), "-")) + ".json"
}

func (k kind) apiVersion() string { return strings.TrimPrefix(k.Group+"/"+k.Version, "/") }

// node is a part of a schema.
type node = map[string]any

// whole returns the schema of an object from that of its kind.
func (k kind) whole(n node) node {
	properties, ok := n["properties"].(node)
	if !ok {
		properties = node{}
	}
	properties["apiVersion"] = node{"const": k.apiVersion()}
	properties["kind"] = node{"const": k.Kind}
	n["properties"] = properties
	required, _ := n["required"].([]any)
	n["required"] = append([]any{"apiVersion", "kind"}, required...)
	return n
}

// kubernetes reads the API description. It skips kinds that belong to several groups, such as
// DeleteOptions, since a chart contains none.
func kubernetes(file string) (map[kind]node, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var swagger struct {
		Definitions map[string]node `json:"definitions"`
	}
	if err := json.Unmarshal(content, &swagger); err != nil {
		return nil, err
	}
	all := map[kind]node{}
	for _, definition := range swagger.Definitions {
		of, err := kinds(definition)
		if err != nil {
			return nil, err
		}
		if len(of) != 1 {
			continue
		}
		used := node{}
		schema := of[0].whole(translate(definition))
		collect(schema, swagger.Definitions, used)
		schema["definitions"] = used
		all[of[0]] = schema
	}
	return all, nil
}

func kinds(definition node) ([]kind, error) {
	listed, ok := definition["x-kubernetes-group-version-kind"]
	if !ok {
		return nil, nil
	}
	text, err := json.Marshal(listed)
	if err != nil {
		return nil, err
	}
	var of []kind
	return of, json.Unmarshal(text, &of)
}

const local = "#/definitions/"

// collect adds all schemas to used that the schema refers to, directly or indirectly.
func collect(v any, definitions map[string]node, used node) {
	switch v := v.(type) {
	case node:
		if ref, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, local)
			if _, there := used[name]; !there {
				used[name] = node{} // the schema may refer to itself
				n := translate(definitions[name])
				used[name] = n
				collect(n, definitions, used)
			}
		}
		for _, inner := range v {
			collect(inner, definitions, used)
		}
	case []any:
		for _, inner := range v {
			collect(inner, definitions, used)
		}
	}
}

// custom reads a CustomResourceDefinition.
func custom(file string, all map[kind]node) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema node `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return err
	}
	if len(crd.Spec.Versions) == 0 {
		return errors.New("it is no CustomResourceDefinition")
	}
	for _, version := range crd.Spec.Versions {
		k := kind{crd.Spec.Group, version.Name, crd.Spec.Names.Kind}
		all[k] = k.whole(translate(version.Schema.OpenAPIV3Schema))
	}
	return nil
}

// translate converts Kubernetes' OpenAPI to JSON schema. References point to the same file, objects
// are closed, and values that may be a number or a string have both types. Formats are removed,
// since Kubernetes defines its own.
func translate(n node) node {
	if ref, ok := n["$ref"].(string); ok {
		switch {
		case strings.HasSuffix(ref, ".Quantity"):
			return node{"type": []any{"string", "number"}}
		case strings.HasSuffix(ref, ".IntOrString"):
			return node{"type": []any{"string", "integer"}}
		}
		return node{"$ref": ref}
	}
	out := node{}
	for key, value := range n {
		switch {
		case key == "properties":
			properties := node{}
			for name, property := range value.(node) {
				properties[name] = inner(property)
			}
			out[key] = properties
		case key != "format" && !strings.HasPrefix(key, "x-kubernetes-"):
			out[key] = inner(value)
		}
	}
	either := n["x-kubernetes-int-or-string"] == true || n["format"] == "int-or-string"
	_, fields := n["properties"]
	_, said := n["additionalProperties"]
	switch {
	case either:
		out["type"] = []any{"string", "integer"}
	case fields && !said && n["x-kubernetes-preserve-unknown-fields"] != true:
		out["additionalProperties"] = false
	}
	return out
}

func inner(v any) any {
	switch v := v.(type) {
	case node:
		return translate(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = inner(v[i])
		}
		return out
	}
	return v
}
