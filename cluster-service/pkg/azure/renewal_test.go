package azure_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// clock is the time of the emulator and of the steps. A test sets it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// renewal is a cluster with a certificate. The vault needs ten minutes to issue one, with Azure's validity.
type renewal struct {
	*region
	clock   *clock
	vault   *azcertificates.Client
	cluster *fleet.ClusterAggregate
}

func newRenewal(t *testing.T) *renewal {
	t.Helper()
	c := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := newRegion(t, emulator.Options{OperationDelay: 10 * time.Minute, Now: c.Now})
	w.now, w.steps.Now, w.steps.Region.AzureKinds = c.Now(), c.Now, []fleet.AzureKind{fleet.AzureCertificate}
	vault := must.Get(azcertificates.NewClient(w.azure.URL, w.azure.Tokens, &azcertificates.ClientOptions{ClientOptions: w.azure.Options().ClientOptions, DisableChallengeResourceVerification: true}))(t)
	r := &renewal{region: w, clock: c, vault: vault, cluster: w.cluster("192.0.2.1")}
	r.until(func() bool { return r.step() != nil && r.step().Done })
	return r
}

func (r *renewal) step() *fleet.AzureStep { return r.cluster.Azure.Step(fleet.AzureCertificate) }

// newest returns the vault's newest version, which must be valid.
func (r *renewal) newest() (version string, ends time.Time) {
	r.Helper()
	found := must.Get(r.vault.GetCertificate(r.Context(), "kas-cid", "", nil))(r)
	if len(found.CER) == 0 || !found.Attributes.Expires.After(r.clock.Now()) {
		r.Fatalf("at %v the vault has a certificate until %v", r.clock.Now(), found.Attributes.Expires)
	}
	return found.ID.Version(), *found.Attributes.Expires
}

// until advances the clock to each time at which the step is due and attempts it, until wanted returns true. From the first
// success on, the vault's newest version must be valid at each of these times.
func (r *renewal) until(wanted func() bool) {
	r.Helper()
	for tries := 0; ; tries++ {
		must.Do(r, r.steps.Region.Settle(r.clock.Now(), r.cluster, nil))
		if wanted() {
			return
		}
		at, due := r.cluster.Azure.DueTime()
		if !due || tries > 100_000 {
			r.Fatalf("at %v, after %d tries, the step is %+v", r.clock.Now(), tries, r.step())
		}
		if at.After(r.clock.Now()) {
			r.clock.set(at)
		}
		if r.step().Done {
			r.newest()
		}
		r.cluster.Azure.Record(r.clock.Now(), r.steps.Try(r.Context(), r.cluster, r.step()))
	}
}

// TestCertificateIsRenewed renews a certificate for three years.
func TestCertificateIsRenewed(t *testing.T) {
	r := newRenewal(t)
	first, ends := r.newest()
	if r.cluster.RenewedCertificate() != "" {
		t.Error("the first certificate is reported as renewed")
	}
	if lead := ends.Sub(r.step().Renew); lead != 60*24*time.Hour {
		t.Errorf("a certificate of a year is renewed %v before its end", lead)
	}
	versions := map[string]bool{first: true}
	for range 3 {
		before, ends := r.newest()
		r.until(func() bool { return r.cluster.RenewedCertificate() != "" && !versions[r.cluster.RenewedCertificate()] })
		renewed, next := r.newest()
		if renewed == before || renewed != r.cluster.RenewedCertificate() || !r.clock.Now().Before(ends) || !next.After(ends) {
			t.Fatalf("at %v version %s until %v is followed by %s until %v, and %s is rendered", r.clock.Now(), before, ends, renewed, next, r.cluster.RenewedCertificate())
		}
		versions[renewed] = true
	}
	r.cluster.Works = nil
	r.cluster.Cluster.DeleteTime = r.clock.Now()
	r.until(func() bool { return r.cluster.Azure == nil || len(r.cluster.Azure.Steps) == 0 })
	r.nothingLeft()
}

// TestCertificateIsRenewedAfterFaults disturbs the renewal. The certificate in use must stay available meanwhile.
func TestCertificateIsRenewedAfterFaults(t *testing.T) {
	tests := map[string]struct {
		reason string
		rule   faults.Rule
		failed bool
	}{
		"Refused":      {"the issuer refuses for a while", faults.Rule{Services: []string{emulator.ServiceIssuer}, Status: http.StatusForbidden, Code: "QuotaExceeded", Count: 4}, true},
		"NoRight":      {"the service has lost the right to create certificates", faults.Rule{Methods: []string{"POST"}, Services: []string{emulator.ServiceVault}, Path: "/create", Status: http.StatusForbidden, Count: 20}, true},
		"LostResponse": {"the request was accepted and its response lost: there is one operation", faults.Rule{Methods: []string{"POST"}, Path: "/create", DropResponse: true, Count: 1}, true},
		"LostRequest":  {"the request did not arrive", faults.Rule{Methods: []string{"POST"}, Path: "/create", DropRequest: true, Count: 1}, true},
		"FailedDelete": {"deleting the failed operation fails once", faults.Rule{Methods: []string{"DELETE"}, Path: "/pending", DropResponse: true, Count: 1}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRenewal(t)
			before, ends := r.newest()
			rules := []faults.Rule{tc.rule}
			if name == "FailedDelete" {
				rules = append(rules, faults.Rule{Services: []string{emulator.ServiceIssuer}, Status: http.StatusForbidden, Count: 1})
			}
			for _, rule := range rules {
				must.Get(r.azure.Faults().Add(rule))(t)
			}
			failed := false
			r.until(func() bool {
				failed = failed || r.step().Error != ""
				if !r.step().Done {
					t.Fatalf("the step is no longer done: %+v", r.step())
				}
				return r.cluster.RenewedCertificate() != ""
			})
			renewed, _ := r.newest()
			if renewed == before || renewed != r.cluster.RenewedCertificate() || !r.clock.Now().Before(ends) {
				t.Errorf("%s: at %v version %s is followed by %s", tc.reason, r.clock.Now(), before, renewed)
			}
			if tc.failed && !failed {
				t.Errorf("%s: the step shows no error", tc.reason)
			}
			for _, rule := range r.azure.Faults().List() {
				if rule.Fired != rule.Count {
					t.Errorf("%s: the fault was injected %d times: %+v", tc.reason, rule.Fired, rule)
				}
			}
		})
	}
}

// TestCertificateRenewedByAnotherClient finds a new version when the renewal is due.
func TestCertificateRenewedByAnotherClient(t *testing.T) {
	r := newRenewal(t)
	first, _ := r.newest()
	r.clock.set(r.step().Renew.Add(-24 * time.Hour))
	policy := must.Get(r.vault.GetCertificate(t.Context(), "kas-cid", "", nil))(t)
	must.Get(r.vault.CreateCertificate(t.Context(), "kas-cid", azcertificates.CreateCertificateParameters{CertificatePolicy: policy.Policy, Tags: policy.Tags}, nil))(t)
	r.until(func() bool { return r.cluster.RenewedCertificate() != "" })
	second, ends := r.newest()
	if second == first || r.cluster.RenewedCertificate() != second || !r.step().Expires.Equal(ends) {
		t.Errorf("version %s until %v is stored as %s until %v", second, ends, r.cluster.RenewedCertificate(), r.step().Expires)
	}
	// The step must not create a third version before the second must be renewed.
	r.clock.set(r.step().Renew.Add(-time.Second))
	if version, _ := r.newest(); version != second {
		t.Errorf("version %s was created, too", version)
	}
}

// TestDeletedCertificateIsCreatedAgain deletes the certificate in the vault. The step creates it again when the renewal is due.
func TestDeletedCertificateIsCreatedAgain(t *testing.T) {
	r := newRenewal(t)
	must.Get(r.vault.DeleteCertificate(t.Context(), "kas-cid", nil))(t)
	r.clock.set(r.step().Renew)
	for r.cluster.RenewedCertificate() == "" {
		must.Do(t, r.steps.Region.Settle(r.clock.Now(), r.cluster, nil))
		at, _ := r.cluster.Azure.DueTime()
		if at.After(r.clock.Now()) {
			r.clock.set(at)
		}
		r.cluster.Azure.Record(r.clock.Now(), r.steps.Try(t.Context(), r.cluster, r.step()))
		if r.clock.Now().After(r.step().Expires) {
			t.Fatalf("the certificate was not created again: %+v", r.step())
		}
	}
	if version, _ := r.newest(); version != r.cluster.RenewedCertificate() {
		t.Errorf("the vault has %s, and %s is rendered", version, r.cluster.RenewedCertificate())
	}
}
