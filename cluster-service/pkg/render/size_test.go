package render_test

import (
	"regexp"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

// TestSizesMatchDefinition checks that HyperShift's NodePool can have each size that the region can offer. A size that it cannot have would be
// accepted from customers, and then refused by management clusters.
func TestSizesMatchDefinition(t *testing.T) {
	schema := publishedSchema(t, "nodepools-Default")
	for _, field := range []string{"spec", "platform", "azure", "vmSize"} {
		property, ok := schema.Properties[field]
		if !ok {
			t.Fatalf("NodePool has no %s", field)
		}
		schema = &property
	}
	if schema.Pattern == "" || schema.MaxLength == nil {
		t.Fatal("the size of a NodePool has no pattern or no limit")
	}
	pattern := regexp.MustCompile(schema.Pattern)
	for _, name := range vmsize.Names() {
		if !pattern.MatchString(name) || int64(len(name)) > *schema.MaxLength {
			t.Errorf("HyperShift refuses the size %s: remove it from sizes.txt", name)
		}
	}
}
