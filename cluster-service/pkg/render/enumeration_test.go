package render_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestUnsupportedValuesAreErrors renders every value of each enumeration, and one value that the enumeration does not have.
// Unsupported values must give an error with the field, the value and the supported values, and never a default.
func TestUnsupportedValuesAreErrors(t *testing.T) {
	tests := map[string]struct {
		variant   string
		field     string
		set       func(t *fleet.ClusterAggregate, value int32)
		values    protoreflect.Enum
		supported []string
	}{
		"key vault access": {"everything", "spec.etcd.kms_key.vault_visibility",
			func(t *fleet.ClusterAggregate, value int32) {
				t.Cluster.Spec.Etcd.KmsKey.VaultVisibility = csv1.Visibility(value)
			},
			csv1.Visibility(0), []string{"VISIBILITY_PUBLIC", "VISIBILITY_PRIVATE"}},
		"client type": {"access", "spec.clients[1].type",
			func(t *fleet.ClusterAggregate, value int32) {
				t.ExternalAuths[0].Spec.Clients[1].Type = csv1.OidcClientType(value)
			},
			csv1.OidcClientType(0), []string{"OIDC_CLIENT_TYPE_CONFIDENTIAL", "OIDC_CLIENT_TYPE_PUBLIC"}},
		"username prefix policy": {"access", "spec.claim_mappings.username.prefix_policy",
			func(t *fleet.ClusterAggregate, value int32) {
				t.ExternalAuths[0].Spec.ClaimMappings.Username.PrefixPolicy = csv1.UsernamePrefixPolicy(value)
			},
			csv1.UsernamePrefixPolicy(0), []string{"USERNAME_PREFIX_POLICY_UNSPECIFIED", "USERNAME_PREFIX_POLICY_NO_PREFIX", "USERNAME_PREFIX_POLICY_PREFIX"}},
		"credential class": {"access", "spec.class",
			func(t *fleet.ClusterAggregate, value int32) {
				t.Credentials[0].Spec.Class = csv1.BreakGlassClass(value)
			},
			csv1.BreakGlassClass(0), []string{"BREAK_GLASS_CLASS_CUSTOMER", "BREAK_GLASS_CLASS_SRE"}},
		"revocation class": {"access", "class",
			func(t *fleet.ClusterAggregate, value int32) { t.Revocations[0].Class = csv1.BreakGlassClass(value) },
			csv1.BreakGlassClass(0), []string{"BREAK_GLASS_CLASS_CUSTOMER", "BREAK_GLASS_CLASS_SRE"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			names := map[int32]string{99: "99"}
			for values, i := tc.values.Descriptor().Values(), 0; i < values.Len(); i++ {
				names[int32(values.Get(i).Number())] = string(values.Get(i).Name())
			}
			for value, name := range names {
				supported := false
				for _, s := range tc.supported {
					supported = supported || s == name
				}
				aggregate, r := aggregate(), renderer()
				variants[tc.variant](aggregate)
				tc.set(aggregate, value)
				err := r.Region.Settle(time.Unix(1_800_000_000, 0), aggregate, r)
				for _, w := range aggregate.Works {
					if err == nil {
						_, err = r.Bundle(aggregate, w)
					}
				}
				switch {
				case supported && err != nil:
					t.Errorf("%s: %v", name, err)
				case !supported && (err == nil || !strings.Contains(err.Error(), tc.field+": unsupported value "+name+": supported values are "+strings.Join(tc.supported, ", "))):
					t.Errorf("%s gave %v, want an error with the field and the supported values", name, err)
				}
			}
		})
	}
}
