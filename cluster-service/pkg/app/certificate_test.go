package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestRenewedCertificateIsServed issues certificates that are valid for a day and advances the clock to the last third of
// it, in which they are renewed. Each new version in the vault reaches the management cluster without an action, a
// rejection by the issuer is reported and counted, and the cluster stays ready.
func TestRenewedCertificateIsServed(t *testing.T) {
	t.Parallel()
	const lifetime = 24 * time.Hour
	const untilRenewal, untilOverdue = lifetime * 17 / 24, lifetime * 4 / 24
	r := newRegion(t).withAzure(emulator.Options{CertificateLifetime: lifetime, OperationDelay: 20 * time.Millisecond})
	r.servingCertificates = true
	r.play()
	service := r.start(nil)
	ctx := t.Context()
	request := r.azureRequest("c")
	must.Get(service.ApplyCluster(ctx, request))(t)
	ready := service.awaitCluster(t, request.Uid, clusterReady(1))
	id := ready.GetStatus().GetClusterId()
	vault := must.Get(azcertificates.NewClient(r.azure.URL, r.azure.Tokens, &azcertificates.ClientOptions{ClientOptions: r.azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	newest := func() string {
		t.Helper()
		found, err := vault.GetCertificate(ctx, "kas-"+id, "", nil)
		if err != nil || len(found.CER) == 0 {
			t.Fatalf("the vault returns no certificate: %v", err)
		}
		return found.ID.Version()
	}
	// fetched returns the version that the management cluster has to fetch.
	fetched := func() string {
		o, _ := r.rendered(t, id, "SecretSync")
		spec, _ := o["spec"].(map[string]any)
		version, _ := spec["forceSynchronization"].(string)
		return version
	}
	versions := map[string]bool{newest(): true}
	for range 3 {
		r.clock.advance(untilRenewal)
		awaitCondition(t, "the next version to be fetched", func() bool {
			version := fetched()
			return version != "" && !versions[version] && version == newest()
		})
		versions[fetched()] = true
	}

	rule := must.Get(r.azure.Faults().Add(faults.Rule{Services: []string{emulator.ServiceIssuer}, Status: http.StatusForbidden, Code: "QuotaExceeded"}))(t)
	r.clock.advance(untilRenewal)
	failing := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return strings.HasPrefix(progressOf(c, "azure"), "RenewalFailing: ")
	})
	if said := progressOf(failing, "azure"); !strings.Contains(said, "renew the API server's certificate, which expires at") || !strings.Contains(said, "QuotaExceeded") {
		t.Errorf("progress is %q", said)
	}
	r.clock.advance(untilOverdue)
	awaitCondition(t, "the metric", func() bool { return service.measures(1, "cluster_service_certificates_overdue") == nil })
	if first, err := service.metric("cluster_service_certificates_first_end_seconds"); err != nil || first == 0 {
		t.Errorf("the metric of the first expiry is not set: %v", err)
	}
	before := newest()
	r.azure.Faults().Remove(rule)
	r.clock.advance(time.Hour) // the next attempt is due
	awaitCondition(t, "the renewal to go on", func() bool { return newest() != before && fetched() == newest() })
	healed := service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return strings.HasPrefix(progressOf(c, "azure"), "Ready: ") })
	if s := healed.GetStatus(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetObservedGeneration() != 1 {
		t.Errorf("the cluster is %v at generation %d", s.GetPhase(), s.GetObservedGeneration())
	}
	must.Get(service.DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: request.Uid}))(t)
	deleted := service.awaitCluster(t, request.Uid, clusterDeleted)
	if left := r.inAzure(deleted); len(left) > 0 {
		t.Errorf("left in Azure: %v", left)
	}
}
