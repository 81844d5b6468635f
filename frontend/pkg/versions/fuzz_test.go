package versions_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// malformed lists bodies with every kind of problem.
var malformed = []string{
	`{}`, `{"properties":null}`, `{"properties":[]}`, `{"tags":{"a":1,"b":null,"c":"d"},"identity":{"type":"Own","userAssignedIdentities":{"/A":{},"/a":{"clientId":1},"x.y[0]":3}}}`,
	`{"properties":{"version":{"id":4.2},"network":{"hostPrefix":"23","podCidr":1e3},"api":{"authorizedCidrs":{},"visibility":"public"},"etcd":{"dataEncryption":{}}}}`,
	`{"properties":{"etcd":{"dataEncryption":{"keyManagementMode":"PlatformManaged","customerManaged":{"kms":{"vaultName":1,"activeKey":{"vaultName":"v","version":""}}}}},"imageDigestMirrors":[null,{},{"source":[],"mirrors":"a"}]}}`,
	`{"properties":{"replicas":9999999999,"autoScaling":{"min":1.5},"labels":[{"key":null}],"taints":{"key":"a"},"autoRepair":"yes","nodeDrainTimeoutMinutes":-0}}`,
	`{"properties":{"issuer":{"audiences":[1,"a",null]},"clients":[{"component":"console","type":"Own"}],"claim":{"mappings":{"groups":{},"username":{"prefixPolicy":""}},"validationRules":[{},null,{"type":""}]}}}`,
}

// seeds adds the malformed bodies and the requests of the contract's examples whose operation starts with a prefix.
func seeds(f *testing.F, operation string, add func(content []byte)) {
	for _, content := range malformed {
		add([]byte(content))
	}
	for _, api := range version.All() {
		all := must.Get(examples.Of(api.Name))(f)
		for _, example := range all {
			if body := example.Body(); body != nil && strings.HasPrefix(example.OperationID, operation) {
				add(body)
			}
		}
	}
}

// fuzz decodes any bytes at every version, as PUT and as PATCH, for a new and for a stored resource.
func fuzz[R any](f *testing.F, operation string, r resource[R], stored func() *R) {
	seeds(f, operation, func(content []byte) { f.Add(content) })
	all := versions.All()
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := wire.ParseObject(content); err != nil {
			return
		}
		for _, v := range all {
			for _, base := range []*R{new(R), stored()} {
				for _, defaults := range []bool{true, false} {
					decodeAny(t, r, v, content, base, defaults)
				}
			}
		}
	})
}

// decodeAny checks that decoding does not panic and is deterministic, that every problem names a field, and that the
// decoded resource does not change when its wire form is decoded again.
func decodeAny[R any](t *testing.T, r resource[R], v *versions.Version, content []byte, base *R, defaults bool) {
	before := text(t, base)
	decode := func(content []byte, base *R, defaults bool) (*R, []wire.Problem) {
		fields := must.Get(wire.ParseObject(content))(t)
		body := wire.NewBody(fields)
		return r.decode(v, body, base, defaults), body.Problems()
	}
	read, problems := decode(content, base, defaults)
	decodeWithForm(t, r, v, content, base, defaults)
	again, more := decode(content, base, defaults)
	if diff := cmp.Diff(read, again); diff != "" || !slices.Equal(problems, more) {
		t.Fatalf("%s: decoding is not deterministic: %s\n%v\n%v", v.Name, diff, problems, more)
	}
	for _, problem := range problems {
		if problem.Field == "" || problem.Message == "" {
			t.Fatalf("%s: a problem without a field or message: %+v", v.Name, problem)
		}
	}
	if !bytes.Equal(before, text(t, base)) {
		t.Fatalf("%s: decoding changed the stored resource", v.Name)
	}
	if len(problems) > 0 {
		return
	}
	shown := text(t, r.encode(v, read))
	if !json.Valid(shown) {
		t.Fatalf("%s: encoded as %s", v.Name, shown)
	}
	patched, problems := decode(shown, read, false)
	if len(problems) > 0 {
		t.Fatalf("%s: its response is rejected by a PATCH: %v", v.Name, problems)
	}
	if back := text(t, r.encode(v, patched)); !bytes.Equal(shown, back) {
		t.Fatalf("%s: a PATCH with its response changed it:\n%s\n%s", v.Name, shown, back)
	}
	// The first PUT sets defaults for empty fields; further ones change nothing.
	replaced, problems := decode(shown, read, true)
	if len(problems) > 0 {
		t.Fatalf("%s: its response is rejected by a PUT: %v", v.Name, problems)
	}
	settled := text(t, r.encode(v, replaced))
	once, _ := decode(settled, replaced, true)
	if back := text(t, r.encode(v, once)); !bytes.Equal(settled, back) {
		t.Fatalf("%s: a second PUT with its response changed it:\n%s\n%s", v.Name, settled, back)
	}
}

// decodeWithForm checks that a body is decoded with its form to the same resource and the same problems as without it. A body with unknown fields in a list
// with too many entries may have the one or the other error.
func decodeWithForm[R any](t *testing.T, r resource[R], v *versions.Version, content []byte, base *R, defaults bool) {
	var unknown [2]string
	var decoded [2]*R
	var problems [2][]wire.Problem
	for i, form := range []*wire.Form{nil, v.Form(r.name)} {
		fields := must.Get(wire.Parse(content, form))(t)
		unknown[i] = v.UnknownField(r.name, fields)
		body := wire.NewBody(fields)
		decoded[i] = r.decode(v, body, base, defaults)
		problems[i] = body.Problems()
	}
	if unknown[0] != "" {
		if unknown[1] == "" && len(problems[1]) == 0 {
			t.Fatalf("%s: the form hides the unknown field %s", v.Name, unknown[0])
		}
		return
	}
	if diff := cmp.Diff(decoded[0], decoded[1]); diff != "" || unknown[1] != "" || !slices.Equal(problems[0], problems[1]) {
		t.Fatalf("%s: the form changes what is decoded, or the problems: %s\n%v\n%v\n%s", v.Name, diff, problems[0], problems[1], unknown[1])
	}
}

func FuzzClusterBody(f *testing.F) {
	fuzz(f, "HcpOpenShiftClusters_", clusters, func() *hub.Cluster {
		cluster := &hub.Cluster{Resource: hub.Resource{ID: "/c", Name: "c", Tags: map[string]string{"a": "b"}, Identity: &hub.Identity{
			Type: "UserAssigned", PrincipalID: "p", UserAssigned: map[string]hub.UserAssignedIdentity{"/A": {ClientID: "c"}},
		}}}
		p := &cluster.Properties
		p.Version = hub.Version{ID: "4.20", ChannelGroup: "stable"}
		p.CryptoRestrictions, p.Ingress.Type = "FIPS", hub.Private
		p.Etcd.DataEncryption = hub.DataEncryption{KeyManagementMode: "CustomerManaged", CustomerManaged: &hub.CustomerManagedEncryption{
			EncryptionType: "KMS", KMS: &hub.KMSEncryption{VaultName: "v", Visibility: hub.Private, ActiveKey: hub.KMSKey{Name: "k", Version: "1"}},
		}}
		return cluster
	})
}

func FuzzNodePoolBody(f *testing.F) {
	fuzz(f, "NodePools_", nodePools, func() *hub.NodePool {
		pool := &hub.NodePool{Resource: hub.Resource{ID: "/c/n", Name: "n"}}
		pool.Properties.Version = hub.Version{ID: "4.20.8", ChannelGroup: "stable"}
		pool.Properties.AutoScaling = &hub.NodePoolAutoScaling{Min: 1, Max: 2}
		pool.Properties.Platform.OSDisk.DiskType = "Ephemeral"
		return pool
	})
}

func FuzzExternalAuthBody(f *testing.F) {
	fuzz(f, "ExternalAuths_", externalAuths, func() *hub.ExternalAuth {
		auth := &hub.ExternalAuth{Resource: hub.Resource{ID: "/c/e", Name: "e"}}
		auth.Properties.Claim.Mappings = hub.TokenClaimMappings{Username: hub.UsernameClaim{PrefixPolicy: "None"}, Groups: &hub.GroupClaim{Claim: "g"}}
		return auth
	})
}

func FuzzCredentialBody(f *testing.F) {
	f.Add([]byte(`{"certificateSigningRequest":"-----BEGIN CERTIFICATE REQUEST-----"}`))
	f.Add([]byte(`{"certificateSigningRequest":["x"]}`))
	f.Add([]byte(`{"certificateSigningRequest":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		fields, err := wire.ParseObject(content)
		if err != nil {
			return
		}
		for _, v := range versions.All() {
			if v.DecodeAdminCredentialRequest == nil {
				continue
			}
			body := wire.NewBody(fields)
			request := v.DecodeAdminCredentialRequest(body)
			if problems := body.Problems(); len(problems) > 0 && (request.CertificateSigningRequest != "" || problems[0].Field != "certificateSigningRequest") {
				t.Errorf("%+v with %v", request, problems)
			}
		}
	})
}
