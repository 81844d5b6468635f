package rbac_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

func TestPermits(t *testing.T) {
	role := &rbac.Role{
		Actions: []string{"Microsoft.Network/*", "*/read", "A/*/b"}, NotActions: []string{"Microsoft.Network/*/delete"},
		DataActions: []string{"Microsoft.KeyVault/vaults/certificates/*"}, NotDataActions: []string{"Microsoft.KeyVault/vaults/certificates/purge/action"},
	}
	for name, c := range map[string]struct {
		action rbac.Action
		want   bool
	}{
		"a wildcard at the end":          {rbac.Action{Name: "Microsoft.Network/dnsZones/write"}, true},
		"the case does not matter":       {rbac.Action{Name: "microsoft.network/DNSZONES/WRITE"}, true},
		"an excluded action":             {rbac.Action{Name: "Microsoft.Network/dnsZones/delete"}, false},
		"a wildcard at the start":        {rbac.Action{Name: "Microsoft.Compute/disks/read"}, true},
		"a wildcard within":              {rbac.Action{Name: "A/x/y/b"}, true},
		"a wildcard within, other end":   {rbac.Action{Name: "A/x/y/c"}, false},
		"only the wildcard's ends":       {rbac.Action{Name: "A/b"}, false},
		"an action of no pattern":        {rbac.Action{Name: "Microsoft.Compute/disks/write"}, false},
		"no action":                      {rbac.Action{}, false},
		"a data action":                  {rbac.Action{Name: "Microsoft.KeyVault/vaults/certificates/read", Data: true}, true},
		"an excluded data action":        {rbac.Action{Name: "Microsoft.KeyVault/vaults/certificates/purge/action", Data: true}, false},
		"an action as a data action":     {rbac.Action{Name: "Microsoft.Network/dnsZones/write", Data: true}, false},
		"a data action as an action":     {rbac.Action{Name: "Microsoft.KeyVault/vaults/certificates/write"}, false},
		"all data of a role with */read": {rbac.Action{Name: "Microsoft.KeyVault/vaults/secrets/read", Data: true}, false},
	} {
		if got := role.Permits(c.action); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestSatisfies evaluates the condition of a role that is limited to some blobs. The emulator permits nothing with other conditions.
func TestSatisfies(t *testing.T) {
	const limited = "((!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action'})) OR " +
		"(@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringLike 'a-??/*.b'))"
	const add = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action"
	for name, c := range map[string]struct {
		condition string
		action    rbac.Action
		want      bool
	}{
		"no condition":               {"", rbac.Action{Name: add, Blob: "x"}, true},
		"another action":             {limited, rbac.Action{Name: "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read", Blob: "x"}, true},
		"a path that matches":        {limited, rbac.Action{Name: strings.ToUpper(add), Blob: "a-12/x/y.b"}, true},
		"a wildcard for one letter":  {limited, rbac.Action{Name: add, Blob: "a-123/x.b"}, false},
		"the case of a path matters": {limited, rbac.Action{Name: add, Blob: "A-12/x.b"}, false},
		"a longer path":              {limited, rbac.Action{Name: add, Blob: "/a-12/x.b/c"}, false},
		"a dot is a dot":             {limited, rbac.Action{Name: add, Blob: "a-12/xxb"}, false},
		"a condition of another form": {"(@Resource[Microsoft.Storage/storageAccounts/blobServices/containers:name] StringEquals 'a')",
			rbac.Action{Name: add, Blob: "a-12/x.b"}, false},
	} {
		if got := c.action.Satisfies(c.condition); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestWithin(t *testing.T) {
	for name, c := range map[string]struct {
		inner, outer string
		want         bool
	}{
		"itself":                      {"/subscriptions/a", "/Subscriptions/A", true},
		"below":                       {"/subscriptions/a/resourceGroups/b", "/subscriptions/a", true},
		"a name with the same prefix": {"/subscriptions/ab", "/subscriptions/a", false},
		"above":                       {"/subscriptions/a", "/subscriptions/a/resourceGroups/b", false},
		"the root":                    {"/subscriptions/a", "/", true},
		"the root itself":             {"/", "/", true},
	} {
		if got := rbac.Within(c.inner, c.outer); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestContextWithoutCallerHasNoRights(t *testing.T) {
	if caller := rbac.FromContext(context.Background()); caller.IsEmulator() || len(caller.Principals()) != 0 {
		t.Errorf("got %+v", caller)
	}
}
