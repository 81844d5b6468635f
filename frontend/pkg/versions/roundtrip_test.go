package versions_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// resource is a resource type with its generator and conversions.
type resource[R any] struct {
	name   string
	draw   func(t *rapid.T) *R
	encode func(v *versions.Version, resource *R) any
	decode func(v *versions.Version, body *wire.Body, base *R, defaults bool) *R
	// unsaid returns the values that a version does not have, before and after a change.
	unsaid func(v *versions.Version, was, now *R) (before, after any)
	// allow removes changes from wanted that the version forbids.
	allow func(v *versions.Version, was, wanted *R)
}

var clusters = resource[hub.Cluster]{
	name: hub.ClusterResourceType,
	draw: drawCluster,
	encode: func(v *versions.Version, cluster *hub.Cluster) any {
		return v.EncodeCluster(cluster, hub.Succeeded, &hub.ClusterStatus{APIURL: "https://api", BaseDomain: "example"})
	},
	decode: func(v *versions.Version, body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster {
		return v.DecodeCluster(body, base, defaults)
	},
	unsaid: func(v *versions.Version, was, now *hub.Cluster) (any, any) {
		of := func(c *hub.Cluster) (unsaid []any) {
			p := &c.Properties
			if v.Name < "2026-06-30" {
				unsaid = append(unsaid, p.Ingress, p.CryptoRestrictions)
			}
			if v.Name < "2025-12-23" {
				unsaid = append(unsaid, p.ImageDigestMirrors, p.Platform.VnetIntegrationSubnetID)
				if kms(was) != nil && kms(now) != nil {
					unsaid = append(unsaid, kms(c).Visibility)
				}
			}
			return unsaid
		}
		return of(was), of(now)
	},
	allow: func(v *versions.Version, was, wanted *hub.Cluster) {
		if v.Name < "2026-06-30" && kms(was) != nil && kms(wanted) != nil {
			kms(wanted).ActiveKey.Version = kms(was).ActiveKey.Version
		}
		// A body may have these values only if the stored resource has them.
		if wanted.Properties.API.Visibility == hub.Private {
			wanted.Properties.API.Visibility = was.Properties.API.Visibility
		}
		if wanted.Properties.Ingress.Type == hub.Private {
			wanted.Properties.Ingress.Type = was.Properties.Ingress.Type
		}
		if kms(wanted) == nil {
			wanted.Properties.Etcd = was.Properties.Etcd
		}
	},
}

func kms(c *hub.Cluster) *hub.KMSEncryption {
	if managed := c.Properties.Etcd.DataEncryption.CustomerManaged; managed != nil {
		return managed.KMS
	}
	return nil
}

var nodePools = resource[hub.NodePool]{
	name: hub.NodePoolResourceType,
	draw: drawNodePool,
	encode: func(v *versions.Version, pool *hub.NodePool) any {
		return v.EncodeNodePool(pool, hub.Succeeded, &hub.NodePoolStatus{})
	},
	decode: func(v *versions.Version, body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool {
		return v.DecodeNodePool(body, base, defaults)
	},
	unsaid: func(v *versions.Version, was, now *hub.NodePool) (any, any) {
		if v.Name < "2025-12-23" {
			return was.Properties.Platform.OSDisk.DiskType, now.Properties.Platform.OSDisk.DiskType
		}
		return nil, nil
	},
	allow: func(*versions.Version, *hub.NodePool, *hub.NodePool) {},
}

var externalAuths = resource[hub.ExternalAuth]{
	name: hub.ExternalAuthResourceType,
	draw: drawExternalAuth,
	encode: func(v *versions.Version, auth *hub.ExternalAuth) any {
		return v.EncodeExternalAuth(auth, hub.AwaitingSecret, &hub.ExternalAuthStatus{})
	},
	decode: func(v *versions.Version, body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth {
		return v.DecodeExternalAuth(body, base, defaults)
	},
	unsaid: func(*versions.Version, *hub.ExternalAuth, *hub.ExternalAuth) (any, any) { return nil, nil },
	allow:  func(*versions.Version, *hub.ExternalAuth, *hub.ExternalAuth) {},
}

// text returns a value's JSON.
func text(t rapid.TB, value any) []byte {
	return must.Get(json.Marshal(value))(t)
}

// body decodes the JSON of a value as the frontend does.
func body(t rapid.TB, value any) *wire.Body {
	fields := must.Get(wire.ParseObject(text(t, value)))(t)
	return wire.NewBody(fields)
}

// TestRoundTrip: sending a response back changes nothing, in a PUT and in a PATCH, at every version.
func TestRoundTrip(t *testing.T) {
	roundTrip(t, "cluster", clusters)
	roundTrip(t, "nodePool", nodePools)
	roundTrip(t, "externalAuth", externalAuths)
}

func roundTrip[R any](t *testing.T, name string, r resource[R]) {
	for _, v := range versions.All() {
		t.Run(name+"/"+v.Name, rapid.MakeCheck(func(t *rapid.T) {
			stored := r.draw(t)
			before := text(t, stored)
			for _, defaults := range []bool{true, false} {
				content := body(t, r.encode(v, stored))
				back := r.decode(v, content, stored, defaults)
				if len(content.Problems()) > 0 {
					t.Fatalf("defaults %v: %v", defaults, content.Problems())
				}
				if diff := cmp.Diff(stored, back, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("defaults %v (-sent +decoded):\n%s", defaults, diff)
				}
			}
			if string(before) != string(text(t, stored)) {
				t.Fatal("decoding changed the resource that it went over")
			}
		}))
	}
}

// TestReplaceKeepsFieldsOfOtherVersions: a PUT replaces the values that the version has and keeps the others.
func TestReplaceKeepsFieldsOfOtherVersions(t *testing.T) {
	replace(t, "cluster", clusters)
	replace(t, "nodePool", nodePools)
	replace(t, "externalAuth", externalAuths)
}

func replace[R any](t *testing.T, name string, r resource[R]) {
	for _, v := range versions.All() {
		t.Run(name+"/"+v.Name, rapid.MakeCheck(func(t *rapid.T) {
			was, wanted := r.draw(t), r.draw(t)
			r.allow(v, was, wanted)
			content := body(t, r.encode(v, wanted))
			now := r.decode(v, content, was, true)
			before, after := r.unsaid(v, was, now)
			if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("fields that the version does not have (-before +after):\n%s", diff)
			}
			if len(content.Problems()) > 0 {
				t.Fatal(content.Problems())
			}
			want, got := shownProperties(t, r.encode(v, wanted)), shownProperties(t, r.encode(v, now))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("properties (-sent +encoded):\n%s", diff)
			}
		}))
	}
}

func shownProperties(t rapid.TB, shown any) any {
	var fields map[string]any
	must.Do(t, json.Unmarshal(text(t, shown), &fields))
	return fields["properties"]
}
