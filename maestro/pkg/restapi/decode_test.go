package restapi

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBodiesAreStrict decodes a body and bodies that name a field in a way that two parsers may understand differently.
func TestBodiesAreStrict(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","labels":{"b":"c"}}`: "",
		`{"name":"a","name":"b"}`:         `duplicate field "name"`,
		`{"labels":{"b":"c","b":"d"}}`:    `duplicate field "labels.b"`,
		`{"Name":"a"}`:                    `unknown field "Name"`,
		`{"name":"a","colour":"red"}`:     `unknown field "colour"`,
		`{"name":"a"`:                     "unexpected end",
		`{"name":"a"}{"name":"b"}`:        "after top-level value",
		`{"name":1}`:                      "cannot unmarshal number",
	} {
		var in consumer
		err := decode(httptest.NewRequest("POST", "/", strings.NewReader(body)), &in)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		if err == nil && in.Name != "a" {
			t.Errorf("%s: name %q", body, in.Name)
		}
	}
}
