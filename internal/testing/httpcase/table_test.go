package httpcase

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// loadTable returns the cases of a suite with one table and the shared steps `ready`.
func loadTable(t *testing.T, table string) ([]Case, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"cases/a.table":       table,
		"steps/ready/01.http": "GET /ready\n\n--- response\n200\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return Suite{Dir: dir}.Load()
}

// TestTable compares the steps of a table's cases with those that the same cases have as folders.
func TestTable(t *testing.T) {
	cases := must.Get(loadTable(t, `include ready
PUT /a @a.json
rejected: GET 404

second: B may be 1.
  p.b = 2
  p.c = [{"d": 1}]
  400 p.b: Invalid value: 2: must be 1
  p.b = 1
  201 as sent
  p.b = 0
  201 p.b = 1
  201 e = {}

first: All errors are reported.
  e = "x = y"
  400 e: Required value
  400 p.b: "Bad"
  PATCH /a
  p.b = null
  400 p.b: Required value
`))(t)
	ready := Step{Name: "ready/01.http", Method: "GET", Target: "/ready", Status: "200"}
	invalid, several := [][2]string{{"x-ms-error-code", "InvalidRequestContent"}}, [][2]string{{"x-ms-error-code", "MultipleErrorsOccurred"}}
	want := []Case{
		{Name: "first", Reason: "All errors are reported.", Steps: []Step{
			ready,
			{Name: "step 2", Method: "PUT", Target: "/a", BodyFile: "a.json", Body: `{"e": "x = y"}`, Status: "400", ExpectedHeaders: several,
				ExpectedBody: `{"error":{"code":"MultipleErrorsOccurred","message":"2 errors occurred","details":[` +
					`{"code":"InvalidRequestContent","target":"e","message":"Required value"},{"code":"InvalidRequestContent","target":"p.b","message":"\"Bad\""}]}}`},
			{Name: "step 2, read back", Method: "GET", Target: "/a", Status: "404"},
			{Name: "step 4", Method: "PATCH", Target: "/a", Body: `{"p": {"b": null}}`, Status: "400", ExpectedHeaders: invalid,
				ExpectedBody: `{"error":{"code":"InvalidRequestContent","target":"p.b","message":"Required value"}}`},
		}},
		{Name: "second", Reason: "B may be 1.", Steps: []Step{
			ready,
			{Name: "step 2", Method: "PUT", Target: "/a", BodyFile: "a.json", Body: `{"p": {"b": 2, "c": [{"d": 1}]}}`, Status: "400", ExpectedHeaders: invalid,
				ExpectedBody: `{"error":{"code":"InvalidRequestContent","target":"p.b","message":"Invalid value: 2: must be 1"}}`},
			{Name: "step 2, read back", Method: "GET", Target: "/a", Status: "404"},
			{Name: "step 4", Method: "PUT", Target: "/a", BodyFile: "a.json", Body: `{"p": {"b": 1}}`, Status: "201", ExpectedBody: `{"p": {"b": 1}}`},
			{Name: "step 5", Method: "PUT", Target: "/a", BodyFile: "a.json", Body: `{"p": {"b": 0}}`, Status: "201", ExpectedBody: `{"p": {"b": 1}, "e": {}}`},
		}},
	}
	if !reflect.DeepEqual(cases, want) {
		t.Errorf("got  %+v\nwant %+v", cases, want)
	}
}

// TestTableRejects tests that no line of a table is ignored.
func TestTableRejects(t *testing.T) {
	for table, want := range map[string]string{
		"a: b\n  c = 1":                                  "fields without an outcome",
		"PUT /a\n\na: b\n  PUT /b":                       "no outcome",
		"a: b\n  c: 1\n  201":                            "not a field",
		"a: b\n  include other\n  201":                   "no steps",
		"a: b\n  201\n  400 c: d":                        "also has the status 201",
		"a: b\n  400":                                    "no error",
		"a: b\n  201 c: d":                               "no field",
		"PUT /a\n\na: b\n  201\n\nPUT /b\n\na: b\n  201": "two cases have the name a",
	} {
		if _, err := loadTable(t, table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want %q", table, err, want)
		}
	}
}
