package fleet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// configured is a HostedCluster whose control plane has spoken of its configuration.
func configured(digest, valid string, generation, spokenOf int64, clients ...feedback.OIDCClient) feedback.Observed {
	o := hosted(digest, "True", "Completed")
	o.Conditions[feedback.ValidControlPlaneConfiguration] = feedback.Condition{Status: valid, Reason: "R", Message: "m"}
	o.Generation, o.ConfigurationGeneration, o.OIDCClients = generation, spokenOf, clients
	return o
}

func TestExternalAuthPhases(t *testing.T) {
	const uid = "e1"
	console := feedback.OIDCClient{Component: "console", Namespace: "openshift-console", Available: "True", Degraded: "False"}
	without := console
	without.Available, without.Degraded, without.Reason = "Unknown", "True", "OIDCClientSecretGet"
	see := func(o feedback.Observed) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) { t.Work(fleet.HostedCluster, "").Observed = o }
	}
	ready := see(configured("cluster-1", "True", 1, 1, console))
	change := func(t *fleet.ClusterAggregate) { t.ExternalAuths[0].Generation, t.Cluster.Generation = 2, 2 } // the digest of these tests is of the cluster's generation
	remove := func(t *fleet.ClusterAggregate) { t.ExternalAuths[0].DeleteTime, t.Cluster.Generation = start, 2 }
	tests := map[string]struct {
		reason   string
		steps    []func(*fleet.ClusterAggregate)
		phase    csv1.ExternalAuthPhase
		observed int64
		awaited  int
		shown    string // the statuses of Available, Progressing and Degraded
	}{
		"Nothing reported": {"it is on its way", nil, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Not placed": {"its cluster waits for a shard", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_PENDING, 0, 0, "False True False"},
		"Carried, not spoken of": {"the control plane has spoken of an older generation", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 2, 1, console))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Another digest": {"what is reported is not what was asked for", []func(*fleet.ClusterAggregate){see(configured("cluster-0", "True", 1, 1, console))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Ready":           {"all of it is there", []func(*fleet.ClusterAggregate){ready}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1, 0, "True False False"},
		"No secret":       {"the customer has not made it", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 1, 1, without))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"Nothing of them": {"a client of which nothing is known was not seen to have its secret", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 1, 1))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"Secret removed":  {"it can be taken away again", []func(*fleet.ClusterAggregate){ready, see(configured("cluster-1", "True", 1, 1, without))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"Invalid":         {"the control plane refuses it", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "False", 1, 1, console))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED, 0, 0, "False False True"},
		"Invalid, then changed": {"a new generation is tried", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "False", 1, 1, console)), change},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Updating": {"a newer generation is on its way", []func(*fleet.ClusterAggregate){ready, change}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING, 1, 0, "True True False"},
		"Updated":  {"it was read back", []func(*fleet.ClusterAggregate){ready, change, see(configured("cluster-2", "True", 2, 2, console))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 2, 0, "True False False"},
		"Deleting": {"the management cluster still has it", []func(*fleet.ClusterAggregate){ready, remove}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING, 1, 0, "True False False"},
		"Deleted":  {"a HostedCluster without it was read back", []func(*fleet.ClusterAggregate){ready, remove, see(configured("cluster-2", "True", 2, 2))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, 1, 0, "True False False"},
		"Cluster deleted": {"it goes with its cluster", []func(*fleet.ClusterAggregate){ready, func(t *fleet.ClusterAggregate) { t.Cluster.DeleteTime = start }, func(t *fleet.ClusterAggregate) { t.Works = nil }},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, 1, 0, "True False False"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			aggregate.ExternalAuths = []*fleet.ExternalAuth{{UID: uid, Generation: 1, Spec: &csv1.ExternalAuthSpec{Name: "Entra", Clients: []*csv1.OidcClient{
				{ComponentName: "console", ComponentNamespace: "openshift-console", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL},
				{ComponentName: "cli", ComponentNamespace: "openshift-console", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC}}}}}
			settle(t, aggregate, versions{})
			for _, step := range tc.steps {
				step(aggregate)
				settle(t, aggregate, versions{})
			}
			s := aggregate.ExternalAuths[0].Status
			if s.GetPhase() != tc.phase || s.GetObservedGeneration() != tc.observed || len(s.GetAwaitedSecrets()) != tc.awaited {
				t.Errorf("%s, observed generation %d, awaiting %d; want %s, %d, %d: %s", s.GetPhase(), s.GetObservedGeneration(), len(s.GetAwaitedSecrets()),
					tc.phase, tc.observed, tc.awaited, tc.reason)
			}
			var shown []string
			for _, kind := range []string{"Available", "Progressing", "Degraded"} {
				for _, c := range s.GetConditions() {
					if c.GetType() == kind {
						shown = append(shown, c.GetStatus())
					}
				}
			}
			if got := strings.Join(shown, " "); got != tc.shown {
				t.Errorf("customers are shown %q, want %q: %s", got, tc.shown, tc.reason)
			}
			again := aggregate.Clone()
			settle(t, again, versions{})
			if !proto.Equal(again.ExternalAuths[0].Status, s) {
				t.Errorf("settling twice changed %v to %v", s, again.ExternalAuths[0].Status)
			}
		})
	}
}

// signed makes a request for a key and a certificate for the same or another one.
func signed(t *testing.T, same bool, notAfter time.Time) (request, certificate string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	if !same {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: start, NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCredentialStates(t *testing.T) {
	const uid, revocation = "c1", "r1"
	answer := func(change func(*feedback.Observed)) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			o := applied("")
			change(&o)
			t.Work(fleet.CredentialWork, uid).Observed = o
		}
	}
	revoke := func(class csv1.BreakGlassClass) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			t.Revocations = []*fleet.Revocation{{UID: revocation, Class: class,
				Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING}}}
		}
	}
	gone := func(kind fleet.WorkKind, owner string) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) { t.Work(kind, owner).Observed.Deleted = true }
	}
	condition := func(name, status string) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			t.Work(fleet.RevocationWork, revocation).Observed = feedback.Observed{Conditions: map[string]feedback.Condition{name: {Status: status, Reason: "R"}}}
		}
	}
	const customer, sre = csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	request, certificate := signed(t, true, start.Add(time.Hour))
	_, foreign := signed(t, false, start.Add(time.Hour))
	issue := answer(func(o *feedback.Observed) { o.Certificate, o.ServingCA = certificate, "ca" })
	deleteCluster := func(t *fleet.ClusterAggregate) { t.Cluster.DeleteTime = start }
	empty := func(t *fleet.ClusterAggregate) { t.Works = nil }
	tests := map[string]struct {
		reason string
		steps  []func(*fleet.ClusterAggregate)
		state  csv1.BreakGlassCredentialState
		// works are those of credentials and revocations that are there and wanted.
		works int
	}{
		"Asked for":           {"nobody has answered", nil, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 1},
		"Signed, no server":   {"without its authority the API server cannot be used", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Certificate = certificate })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 1},
		"Issued":              {"the request has served", []func(*fleet.ClusterAggregate){issue}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"For another key":     {"nobody could use it", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Certificate, o.ServingCA = foreign, "ca" })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Denied":              {"the control plane said no", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Conditions = map[string]feedback.Condition{"Denied": {Status: "True"}} })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Refused by Maestro":  {"it will never arrive", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.CredentialWork, uid).Refused = true }}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Revoked while asked": {"it is given up before the signer is replaced", []func(*fleet.ClusterAggregate){revoke(customer)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 0},
		"Its request is gone": {"now the revocation begins", []func(*fleet.ClusterAggregate){revoke(customer), gone(fleet.CredentialWork, uid)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 1},
		"Other class revoked": {"each class is on its own", []func(*fleet.ClusterAggregate){revoke(sre)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 2},
		"Being revoked":       {"the API server may still accept it", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION, 1},
		"Revoked": {"the API server refuses its signer", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer), condition(feedback.PreviousCertificatesRevoked, "True")},
			csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
		"Revocation fails": {"nothing was taken from it", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer), condition(feedback.SignerClassValid, "False")},
			csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"Expired": {"its time is over", []func(*fleet.ClusterAggregate){issue, func(t *fleet.ClusterAggregate) {
			t.Credentials[0].Status.ExpirationTime.Seconds = start.Unix()
		}}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED, 0},
		"Cluster goes, pending": {"nobody will sign it", []func(*fleet.ClusterAggregate){deleteCluster}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 0},
		"Cluster goes, issued":  {"its API server is still there", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), deleteCluster}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"Cluster gone":          {"there is nothing that would accept it", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), deleteCluster, empty}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			aggregate.Work(fleet.HostedCluster, "").Observed = hosted("cluster-1", "True", "Completed")
			aggregate.Credentials = []*fleet.Credential{{UID: uid, Spec: &csv1.BreakGlassCredentialSpec{Class: customer, CertificateSigningRequest: request},
				Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}}
			settle(t, aggregate, nil)
			for _, step := range tc.steps {
				step(aggregate)
				settle(t, aggregate, nil)
			}
			c := aggregate.Credentials[0]
			works := 0
			for _, w := range aggregate.Works {
				if (w.Kind == fleet.CredentialWork || w.Kind == fleet.RevocationWork) && !w.Deleting() {
					works++
				}
			}
			if c.State() != tc.state || works != tc.works {
				t.Errorf("%s with %d works; want %s with %d: %s", c.State(), works, tc.state, tc.works, tc.reason)
			}
			again := aggregate.Clone()
			settle(t, again, nil)
			if !proto.Equal(again.Credentials[0].Status, c.Status) || len(again.Works) != len(aggregate.Works) {
				t.Errorf("settling twice changed %v to %v", c.Status, again.Credentials[0].Status)
			}
		})
	}
}

// FuzzParseRequest looks for requests that pass without being one that is signed with its own key.
func FuzzParseRequest(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if request, err := fleet.ParseRequest(text); err == nil && request.CheckSignature() != nil {
			t.Errorf("took %q", text)
		}
	})
}
