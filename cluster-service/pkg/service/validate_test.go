package service

import (
	"slices"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// TestKeyVaultVisibilityIsRequired validates a customer-managed key with each visibility, and a cluster without such a key.
func TestKeyVaultVisibilityIsRequired(t *testing.T) {
	const field = "spec.etcd.kms_key.vault_visibility"
	violations := func(etcd *csv1.Etcd) []apierror.Violation {
		return slices.DeleteFunc(validateClusterSpec(&csv1.ClusterSpec{Etcd: etcd}), func(v apierror.Violation) bool { return v.Field != field })
	}
	values := csv1.Visibility(0).Descriptor().Values()
	for i := range values.Len() {
		visibility := csv1.Visibility(values.Get(i).Number())
		var want []apierror.Violation
		if visibility == csv1.Visibility_VISIBILITY_UNSPECIFIED {
			want = []apierror.Violation{{Field: field, Message: "Required value: supported values: PUBLIC, PRIVATE"}}
		}
		if got := violations(&csv1.Etcd{KmsKey: &csv1.KmsKey{VaultVisibility: visibility}}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", visibility, got, want)
		}
	}
	if got := violations(&csv1.Etcd{}); len(got) > 0 {
		t.Errorf("without a customer-managed key: %v, want no violation", got)
	}
}
