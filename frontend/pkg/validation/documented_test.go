package validation_test

import (
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/rulebook"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// book returns the tables of docs/validation.md.
func book(t testing.TB) rulebook.Book {
	t.Helper()
	return must.Get(rulebook.Read("../../docs/validation.md"))(t)
}

// path matches a JSON path: names separated by dots, each with indices and keys. A key may contain any text.
var path = regexp.MustCompile(`(?s)^(location|tags|identity|name|type|properties)([.\[].*)?$`)

// documented checks that every violation has a rule in the tables, a well-formed path and valid UTF-8.
func documented(t testing.TB, book rulebook.Book, violations []apierror.Violation) {
	t.Helper()
	for _, v := range violations {
		if !path.MatchString(v.Field) || !utf8.ValidString(v.Field) || !utf8.ValidString(v.Message) {
			t.Errorf("invalid path %q or message %q", v.Field, v.Message)
		}
		if !book.Describes(v.Field, v.Message) {
			t.Errorf("docs/validation.md has no rule for %q at %q", v.Message, v.Field)
		}
	}
}

// fuzzed decodes any bytes at every version, for a new or a stored resource, and passes the results on.
func fuzzed(t *testing.T, rules rulebook.Book, content []byte, decode func(version *versions.Version, body *wire.Body) []apierror.Violation) {
	fields, err := wire.ParseObject(content)
	if err != nil {
		return
	}
	for _, version := range versions.All() {
		body := wire.NewBody(fields)
		violations := decode(version, body)
		for _, problem := range body.Problems() {
			violations = append(violations, apierror.Violation{Field: problem.Field, Message: problem.Message})
		}
		documented(t, rules, violations)
	}
}

var seeds = []string{
	`{"location":"westus3","tags":{"a":"b","A":"c","aro-hcp.experimental.cluster.size-override":"x"},"identity":{"type":"UserAssigned","userAssignedIdentities":{"/x":{"clientId":1},"y":null}},` +
		`"properties":{"version":{"id":"4.20","channelGroup":"nightly"},"network":{"podCidr":"10.0.0.0/8","hostPrefix":99},"api":{"authorizedCidrs":["x",""]},"platform":{"subnetId":"/subscriptions/","managedResourceGroup":"a."}}}`,
	`{"properties":{"etcd":{"dataEncryption":{"keyManagementMode":"CustomerManaged","customerManaged":{"kms":{"vaultName":"\u0000"}}}},"imageDigestMirrors":[{"source":"https://a","mirrors":["a","b:1","` + "\xff" + `"]},null]}}`,
	`{"properties":{"version":{"id":"4.21.4"},"platform":{"vmSize":"x","osDisk":{"diskType":"Ephemeral","sizeGiB":1}},"replicas":-1,"autoScaling":{"min":3,"max":1},"labels":[{"key":"node-role.kubernetes.io/master"},{"key":"a/b/c"}],"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}`,
	`{"properties":{"issuer":{"url":"http://a","audiences":[""],"ca":"-----BEGIN CERTIFICATE-----"},"clients":[{"component":{"name":"console","authClientNamespace":"openshift-console"},"clientId":"a","type":"Public"}],"claim":{"mappings":{"username":{"claim":"","prefixPolicy":"Prefix"}},"validationRules":[{"type":"RequiredClaim"}]}}}`,
}

// FuzzCluster: every violation of any body has a rule in the tables, and a stored resource never violates a rule again.
func FuzzCluster(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), true, false)
		f.Add([]byte(seed), false, true)
	}
	r, described := rules(f), book(f)
	f.Fuzz(func(t *testing.T, content []byte, create, experiments bool) {
		subscription := &hub.Subscription{}
		if experiments {
			subscription = experimenting()
		}
		fuzzed(t, described, content, func(version *versions.Version, body *wire.Body) []apierror.Violation {
			change := validation.ClusterChange{Subscription: subscription}
			base := &hub.Cluster{Resource: hub.Resource{ID: clusterID}}
			if !create {
				base = validCluster()
				change.Old, change.ActiveVersions = base, []string{"4.20.8"}
			}
			change.New = version.DecodeCluster(body, base, create)
			violations := append(r.ApplyExperiments(&change.New.Resource, nil, subscription), r.Cluster(change)...)
			kept := r.Cluster(validation.ClusterChange{New: change.New, Old: change.New, Subscription: subscription})
			if len(kept) > 0 {
				t.Errorf("the stored resource violates a rule again: %v", kept)
			}
			return violations
		})
	})
}

// FuzzNodePool is FuzzCluster for node pools.
func FuzzNodePool(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	r, described := rules(f), book(f)
	f.Fuzz(func(t *testing.T, content []byte, create bool) {
		fuzzed(t, described, content, func(version *versions.Version, body *wire.Body) []apierror.Violation {
			change := validation.NodePoolChange{Cluster: validCluster(), ActiveVersions: []string{"4.22.1", "junk"}, Subscription: experimenting()}
			base := &hub.NodePool{Resource: hub.Resource{ID: clusterID + "/nodePools/pool"}}
			if !create {
				base = validNodePool()
				change.Old = base
			}
			change.New = version.DecodeNodePool(body, base, create)
			violations := append(r.ApplyExperiments(&change.New.Resource, nil, change.Subscription), r.NodePool(change)...)
			change.Old = change.New
			if kept := r.NodePool(change); len(kept) > 0 {
				t.Errorf("the stored resource violates a rule again: %v", kept)
			}
			return violations
		})
	})
}

// FuzzExternalAuth is FuzzCluster for external authentications.
func FuzzExternalAuth(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	r, described := rules(f), book(f)
	f.Fuzz(func(t *testing.T, content []byte, create bool) {
		fuzzed(t, described, content, func(version *versions.Version, body *wire.Body) []apierror.Violation {
			change := validation.ExternalAuthChange{Cluster: validCluster(), Subscription: &hub.Subscription{}}
			base := &hub.ExternalAuth{Resource: hub.Resource{ID: clusterID + "/externalAuths/auth"}}
			change.New = version.DecodeExternalAuth(body, base, create)
			violations := r.ExternalAuth(change)
			change.Old = change.New
			if kept := r.ExternalAuth(change); len(kept) > 0 {
				t.Errorf("the stored resource violates a rule again: %v", kept)
			}
			return violations
		})
	})
}
