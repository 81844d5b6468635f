package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/msi-dataplane/pkg/dataplane"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestIssuedCredentialsAreChecked changes each field of a credential that is checked.
func TestIssuedCredentialsAreChecked(t *testing.T) {
	const id = "/subscriptions/s/resourcegroups/g/providers/microsoft.managedidentity/userassignedidentities/i"
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(days int) *string { return to.Ptr(now.AddDate(0, 0, days).Format(time.RFC3339)) }
	type issued = dataplane.UserAssignedIdentityCredentials
	for name, tc := range map[string]struct {
		change func(*issued)
		want   string
	}{
		"usable":                     {func(*issued) {}, ""},
		"without a client ID":        {func(c *issued) { c.ClientID = nil }, "another client_id"},
		"of another application":     {func(c *issued) { c.ClientID = to.Ptr("other") }, "another client_id"},
		"of another principal":       {func(c *issued) { c.ObjectID = to.Ptr("other") }, "another object_id"},
		"without a secret":           {func(c *issued) { c.ClientSecret = to.Ptr("") }, "no client_secret"},
		"without a tenant":           {func(c *issued) { c.TenantID = nil }, "no tenant_id"},
		"without an endpoint":        {func(c *issued) { c.AuthenticationEndpoint = nil }, "no authentication_endpoint"},
		"without a last renewal":     {func(c *issued) { c.CannotRenewAfter = nil }, "no cannot_renew_after"},
		"with another form of time":  {func(c *issued) { c.NotAfter = to.Ptr("2026-06-01") }, "not_after of the credential is not a time"},
		"that ends before it begins": {func(c *issued) { c.NotBefore = at(91) }, "before it begins (not_before)"},
		"that has ended":             {func(c *issued) { c.NotBefore, c.NotAfter = at(-90), at(-1) }, "has ended"},
		"that is renewed too late":   {func(c *issued) { c.RenewAfter = at(91) }, "before it may be renewed"},
	} {
		credential := &issued{ClientID: to.Ptr("client"), ObjectID: to.Ptr("principal"), TenantID: to.Ptr("tenant"), ClientSecret: to.Ptr("hidden"),
			AuthenticationEndpoint: to.Ptr("https://login.example"), NotBefore: at(0), NotAfter: at(90), RenewAfter: at(45), CannotRenewAfter: at(180)}
		tc.change(credential)
		a := &attempt{Steps: &Steps{Now: func() time.Time { return now }}, azure: &fleet.Azure{Steps: []*fleet.AzureStep{{Kind: fleet.AzureIdentities, Facts: fleet.IdentityFacts(id, "client", "principal")}}}}
		c := &operatorCredential{operator: "ingress", id: id, issued: credential}
		err := a.checkIssued(c)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("a credential %s: %v, want %q", name, err, tc.want)
		}
		if err == nil && (!c.ends.Equal(now.AddDate(0, 0, 90)) || !c.renews.Equal(now.AddDate(0, 0, 45))) {
			t.Errorf("a credential %s ends at %v and is renewed at %v", name, c.ends, c.renews)
		}
	}
	if err := (&attempt{}).checkIssued(&operatorCredential{}); err == nil {
		t.Error("a response without the credential is accepted")
	}
}
