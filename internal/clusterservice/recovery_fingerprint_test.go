package clusterservice_test

import (
	"testing"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

// TestRecoveryFollowsSealingKey checks that the recovery data is read again after the signing key was sealed with another key.
func TestRecoveryFollowsSealingKey(t *testing.T) {
	cluster := &clusterservicev1.Cluster{SealingKeyId: 1, Status: &clusterservicev1.ClusterStatus{ProvisionShard: "mgmt-1"}}
	before := clusterservice.RecoveryFingerprint(cluster)
	if clusterservice.RecoveryFingerprint(cluster) != before {
		t.Error("the fingerprint of the same state differs")
	}
	cluster.SealingKeyId = 2
	if clusterservice.RecoveryFingerprint(cluster) == before {
		t.Error("the recovery data keeps the signing key that a former key sealed")
	}
}
