package patch

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

func parse(t *testing.T, s string) document.Value {
	t.Helper()
	v, err := document.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestMove tests operations that the Go client cannot send. Package emulator tests the others with the client.
func TestMove(t *testing.T) {
	const doc = `{"id":"a","pk":"p","o":{"k":1},"list":[1,2]}`
	cases := map[string]struct{ patch, want, reason string }{
		"move":          {`[{"op":"move","from":"/o/k","path":"/k"}]`, `{"id":"a","pk":"p","o":{},"list":[1,2],"k":1}`, "a property"},
		"over":          {`[{"op":"move","from":"/o/k","path":"/list"}]`, `{"id":"a","pk":"p","o":{},"list":1}`, "the old value is replaced"},
		"into an array": {`[{"op":"move","from":"/o","path":"/list/0"}]`, `{"id":"a","pk":"p","list":[{"k":1},1,2]}`, "inserts"},
		"within":        {`[{"op":"move","from":"/list/0","path":"/list/1"}]`, `{"id":"a","pk":"p","o":{"k":1},"list":[2,1]}`, "positions after the removal"},
		"nothing":       {`[{"op":"move","from":"/x","path":"/y"}]`, "", "the source does not exist"},
		"into itself":   {`[{"op":"move","from":"/o","path":"/o/k/l"}]`, "", "the target is within the source"},
		"the key":       {`[{"op":"move","from":"/pk","path":"/x"}]`, "", "the partition key is immutable"},
		"parent of key": {`[{"op":"set","path":"/pk/x","value":1}]`, "", "children of the partition key are immutable"},
		"unknown":       {`[{"op":"copy","from":"/o","path":"/x"}]`, "", "an unknown operation"},
		"no value":      {`[{"op":"set","path":"/x"}]`, "", "set requires a value"},
		"null":          {`[{"op":"set","path":"/x","value":null}]`, `{"id":"a","pk":"p","o":{"k":1},"list":[1,2],"x":null}`, "null is a value"},
		"escaped":       {`[{"op":"set","path":"/a~1b~0","value":1}]`, `{"id":"a","pk":"p","o":{"k":1},"list":[1,2],"a/b~":1}`, "RFC 6901"},
		"two":           {`{"operations":[{"op":"incr","path":"/o/k","value":1.5},{"op":"remove","path":"/list/1"}]}`, `{"id":"a","pk":"p","o":{"k":2.5},"list":[1]}`, "operations are applied in order"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := parse(t, doc)
			p, err := Parse(parse(t, tc.patch), [][]string{{"pk"}})
			var got document.Value
			if err == nil {
				got, err = p.Apply(before)
			}
			if (err != nil) != (tc.want == "") {
				t.Fatalf("error %v: %s", err, tc.reason)
			}
			if err == nil && got.JSON() != tc.want {
				t.Errorf("%s, want %s: %s", got.JSON(), tc.want, tc.reason)
			}
			if before.JSON() != doc {
				t.Errorf("Apply changed the original to %s", before.JSON())
			}
		})
	}
}
