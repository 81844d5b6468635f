package fleet_test

import (
	"strings"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestUnknownClassesHaveNoNames derives the names from each class, and from one that is not defined. No class may get the
// names of another one.
func TestUnknownClassesHaveNoNames(t *testing.T) {
	type names struct{ signer, credential string }
	supported := map[csv1.BreakGlassClass]names{
		csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER: {"customer-break-glass", "system-admin-credential-u"},
		csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:      {"sre-break-glass", "sre-breakglass-u"},
	}
	classes := []csv1.BreakGlassClass{99}
	for values, i := csv1.BreakGlassClass(0).Descriptor().Values(), 0; i < values.Len(); i++ {
		classes = append(classes, csv1.BreakGlassClass(values.Get(i).Number()))
	}
	for _, class := range classes {
		signer, signerErr := fleet.SignerClass(class)
		credential, credentialErr := fleet.CredentialName(&fleet.Credential{UID: "u", Spec: &csv1.BreakGlassCredentialSpec{Class: class}})
		want, known := supported[class]
		if got := (names{signer, credential}); got != want {
			t.Errorf("%s: names %v, want %v", class, got, want)
		}
		for function, err := range map[string]error{"SignerClass": signerErr, "CredentialName": credentialErr} {
			switch message := "unsupported value " + class.String() + ": supported values are BREAK_GLASS_CLASS_CUSTOMER, BREAK_GLASS_CLASS_SRE"; {
			case known && err != nil:
				t.Errorf("%s(%s): %v", function, class, err)
			case !known && (err == nil || !strings.Contains(err.Error(), message)):
				t.Errorf("%s(%s): %v, want %q", function, class, err, message)
			}
		}
	}
}
