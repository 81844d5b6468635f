package schema

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

const small = `{
  "type": "object", "additionalProperties": false, "required": ["name", "service"],
  "properties": {
    "region": {"type": "string", "x-computed": true},
    "name": {"type": "string", "pattern": "^[a-z]+$", "x-layer": "environment"},
    "zones": {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}},
    "service": {"type": "object", "additionalProperties": false, "required": ["replicas", "key"], "x-used-by": ["charts"],
      "properties": {
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9},
        "key": {"$ref": "#/$defs/secretReference", "description": "Key.", "x-configures": ["frontend --key"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}
      }}
  },
  "$defs": {"secretReference": {"type": "object", "additionalProperties": false, "required": ["vault", "secret"],
    "properties": {"vault": {"enum": ["service"], "type": "string"}, "secret": {"type": "string", "pattern": "^[a-z-]+$"}}}}
}`

func compiled(t *testing.T) *Schema {
	t.Helper()
	return must.Get(Parse([]byte(small)))(t)
}

func parse(t *testing.T, text string) *document.Node {
	t.Helper()
	root, problems := document.Parse(document.Origin{Layer: "region", File: "region.yaml"}, []byte(text))
	if problems != nil {
		t.Fatal(problems)
	}
	return root
}

const hidden = "hunter2"

func TestCheckLayer(t *testing.T) {
	s := compiled(t)
	for reason, c := range map[string]struct {
		text, want string
	}{
		"a valid layer":        {"zones: [\"1\"]\nservice: {replicas: 2, labels: {a: b}, key: {vault: service, secret: x}}", ""},
		"a missing key":        {"{}", ""},
		"a reference":          {"zones: [\"${name}\"]", ""},
		"an unknown key":       {"service:\n  replcas: 1", "region.yaml:2: service.replcas: unknown key; did you mean replicas? (layer region)"},
		"another unknown key":  {"nothing: 1", "unknown key; known keys are"},
		"a wrong type":         {"service: {replicas: two}", "service.replicas: is a string; it must be an integer"},
		"a reference for int":  {"service: {replicas: \"${name}\"}", "service.replicas: has a reference; it must be an integer"},
		"out of range":         {"service: {replicas: 10}", "service.replicas: maximum: got 10, want 9"},
		"a wrong item":         {"zones: [\"1\", \"7\"]", "zones.1: value must be one of"},
		"a map for a list":     {"zones: {a: 1}", "zones: is a map; it must be a list"},
		"a list for a map":     {"service: [1]", "service: is a list; it must be a map"},
		"a computed key":       {"region: x", "region: is computed; no layer may set it"},
		"too deep a layer":     {"name: x", "name: may be set for an environment and outside of it, but not for a region"},
		"a secret":             {"service: {key: " + hidden + "}", "service.key: is a secret: it needs a reference"},
		"a secret as the name": {"service: {key: {vault: service, secret: " + hidden + "}}", "service.key.secret: is not part of a reference"},
		"a secret elsewhere":   {"service: {labels: {a: \"postgres://user:" + hidden + "@host/db\"}}", "service.labels.a: has the form of a secret"},
		"a secret in a list":   {"zones: [\"AccountKey=" + hidden + "\"]", "zones.0: has the form of a secret"},
	} {
		target, _ := layer.ParseTarget("public/dev/west")
		got := s.CheckLayer(&layer.Layer{Target: target, Root: parse(t, c.text)}).Error()
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", reason, got, c.want)
		}
		if strings.Contains(got, hidden) {
			t.Errorf("%s: the error contains the secret: %s", reason, got)
		}
	}
}

func TestCheck(t *testing.T) {
	s := compiled(t)
	origin := func(level int) document.Origin {
		return document.Origin{Layer: layer.Levels[level], File: layer.Levels[level] + ".yaml"}
	}
	for reason, c := range map[string]struct {
		text, want string
	}{
		"a valid target":         {"name: x\nservice: {replicas: 1, key: {vault: service, secret: x}}", ""},
		"a missing key":          {"service: {replicas: 1, key: {vault: service, secret: x}}", "environment.yaml: name: is required, and no layer sets it (layer environment)"},
		"a missing secret":       {"name: x\nservice: {replicas: 1}", "region.yaml: service.key: is required, and no layer sets it (layer region)"},
		"a resolved wrong value": {"name: X\nservice: {replicas: 1, key: {vault: service, secret: x}}", `region.yaml:1: name: "X" does not match ^[a-z]+$`},
		"a wrong vault":          {"name: x\nservice: {replicas: 1, key: {vault: " + hidden + ", secret: x}}", "service.key.vault: is not part of a reference"},
	} {
		got := s.Check(parse(t, c.text), origin).Error()
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", reason, got, c.want)
		}
		if strings.Contains(got, hidden) {
			t.Errorf("%s: the error contains the secret: %s", reason, got)
		}
	}
}

func TestAnnotationsAreInherited(t *testing.T) {
	s := compiled(t)
	if p := s.Lookup("service", "replicas"); p.UsedBy[0] != "charts" || p.Layer != "region" {
		t.Errorf("service.replicas is used by %v and may be set by %s", p.UsedBy, p.Layer)
	}
	if p := s.Lookup("service", "key"); p.Description != "Key." || p.Configures[0] != "frontend --key" || !p.Secret() {
		t.Errorf("service.key is %+v", p)
	}
	if s.Lookup("service", "labels", "any") == nil || s.Lookup("service", "other") != nil {
		t.Error("keys of maps are not distinguished from unknown keys")
	}
}

func TestSecretForms(t *testing.T) {
	for text, secret := range map[string]bool{
		"-----BEGIN RSA PRIVATE KEY-----":                                      true,
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc":                 true,
		"Endpoint=x;SharedAccessKey=abc":                                       true,
		"https://a.blob.core.windows.net/c?sig=abcdefghijklmnopqrstuvwxyz0123": true,
		strings.Repeat("Ab1+", 21) + "Ab==":                                    true,
		`{"auths": {}}`:                                                        true,
		"https://login.microsoftonline.com":                                    false,
		"http://mise.mise.svc:8080/x":                                          false,
		"sha256:" + strings.Repeat("a", 64):                                    false,
		"hcpm-prod-uks":                                                        false,
	} {
		c := &layerCheck{schema: compiled(t)}
		if got := c.secretIn([]string{"k"}, &document.Node{Value: text}); got != secret {
			t.Errorf("%s: got %v, want %v", text, got, secret)
		}
	}
}
