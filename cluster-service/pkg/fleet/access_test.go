package fleet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// configured returns the report of a HostedCluster whose control plane validated a generation of its configuration.
func configured(digest, valid string, generation, validated int64, clients ...feedback.OIDCClient) feedback.Observed {
	o := hosted(digest, "True", "Completed")
	o.Conditions[feedback.ValidControlPlaneConfiguration] = feedback.Condition{Status: valid, Reason: "R", Message: "m"}
	o.Generation, o.ConfigurationGeneration, o.OIDCClients = generation, validated, clients
	return o
}

func TestExternalAuthPhases(t *testing.T) {
	const uid = "e1"
	console := feedback.OIDCClient{Component: "console", Namespace: "openshift-console", Available: "True", Degraded: "False"}
	without := console
	without.Available, without.Degraded, without.Reason = "Unknown", "True", "OIDCClientSecretGet"
	see := func(o feedback.Observed) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) { observe(t.Work(fleet.HostedCluster, ""), o) }
	}
	withEgressFailure := func(target string) feedback.Observed {
		o := configured("cluster-1", "True", 1, 1, console)
		o.EgressFailures = []hostedreport.EgressFailure{{Target: target, Outcome: hostedreport.EgressAddress, First: start, Last: start}}
		return o
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
		"Nothing reported": {"the agent has not reported", nil, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Not placed": {"its cluster is not placed", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_PENDING, 0, 0, "False True False"},
		"Applied, not validated": {"the control plane validated an older generation", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 2, 1, console))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Another digest": {"the report is for another desired state", []func(*fleet.ClusterAggregate){see(configured("cluster-0", "True", 1, 1, console))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Ready": {"the control plane accepts tokens and the secret exists", []func(*fleet.ClusterAggregate){ready}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1, 0, "True False False"},
		"Refused issuer": {"the egress proxy does not connect to the issuer", []func(*fleet.ClusterAggregate){see(withEgressFailure("login.example.com:443"))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1, 0, "Unknown False True"},
		"Refused, then reached": {"the report has no failure any more", []func(*fleet.ClusterAggregate){see(withEgressFailure("login.example.com:443")), ready},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1, 0, "True False False"},
		"Another target refused": {"the failure is not about the issuer", []func(*fleet.ClusterAggregate){see(withEgressFailure("webhook.example.com:443"))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1, 0, "True False False"},
		"No secret":          {"the customer has not created it", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 1, 1, without))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"No client reported": {"a client without a report counts as missing its secret", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "True", 1, 1))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"Secret removed":     {"the customer can delete it later", []func(*fleet.ClusterAggregate){ready, see(configured("cluster-1", "True", 1, 1, without))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1, 1, "True True False"},
		"Invalid":            {"the control plane rejects it", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "False", 1, 1, console))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED, 0, 0, "False False True"},
		"Invalid, then changed": {"a new generation is tried", []func(*fleet.ClusterAggregate){see(configured("cluster-1", "False", 1, 1, console)), change},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, 0, 0, "False True False"},
		"Updating": {"a newer generation is not applied", []func(*fleet.ClusterAggregate){ready, change}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING, 1, 0, "True True False"},
		"Updated":  {"the newer generation was reported", []func(*fleet.ClusterAggregate){ready, change, see(configured("cluster-2", "True", 2, 2, console))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 2, 0, "True False False"},
		"Paused": {"HyperShift reports the generation of a paused cluster and does not apply it", []func(*fleet.ClusterAggregate){ready, change, see(with(configured("cluster-2", "True", 2, 2, console), feedback.ReconciliationActive, "False"))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING, 1, 0, "True True False"},
		"Deleting": {"the management cluster still has it", []func(*fleet.ClusterAggregate){ready, remove}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING, 1, 0, "True False False"},
		"Deleting, paused": {"the control plane of a paused cluster accepts the issuer", []func(*fleet.ClusterAggregate){ready, remove, see(with(configured("cluster-2", "True", 2, 2), feedback.ReconciliationActive, "False"))},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING, 1, 0, "True False False"},
		"Deleted": {"a HostedCluster without it was reported", []func(*fleet.ClusterAggregate){ready, remove, see(configured("cluster-2", "True", 2, 2))}, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, 1, 0, "True False False"},
		"Cluster deleted": {"the deletion of its cluster deletes it", []func(*fleet.ClusterAggregate){ready, func(t *fleet.ClusterAggregate) { t.Cluster.DeleteTime = start }, func(t *fleet.ClusterAggregate) { t.Works = nil }},
			csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, 1, 0, "True False False"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			aggregate.ExternalAuths = []*fleet.ExternalAuth{{UID: uid, Generation: 1, Spec: &csv1.ExternalAuthSpec{Name: "Entra", Issuer: &csv1.TokenIssuer{Url: "https://Login.example.com/t"}, Clients: []*csv1.OidcClient{
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
				t.Errorf("customers see %q, want %q: %s", got, tc.shown, tc.reason)
			}
			again := aggregate.Clone()
			settle(t, again, versions{})
			if !proto.Equal(again.ExternalAuths[0].Status, s) {
				t.Errorf("settling twice changed %v to %v", s, again.ExternalAuths[0].Status)
			}
		})
	}
}

func TestCredentialStates(t *testing.T) {
	const uid, revocation = "c1", "r1"
	answer := func(change func(*feedback.Observed)) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			o := applied("")
			change(&o)
			observe(t.Work(fleet.CredentialWork, uid), o)
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
			observe(t.Work(fleet.RevocationWork, revocation), feedback.Observed{Conditions: map[string]feedback.Condition{name: {Status: status, Reason: "R"}}})
		}
	}
	const customer, sre = csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	request, certificate := signed(t, true, start.Add(time.Hour))
	_, foreign := signed(t, false, start.Add(time.Hour))
	issue := answer(func(o *feedback.Observed) { o.Certificate, o.ServingCA = certificate, "ca" })
	// limit requests a certificate with a lifetime, in an elevation that ends after a duration. certificate ends after one hour.
	limit := func(lifetime, end time.Duration) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			t.Credentials[0].Spec.Lifetime, t.Credentials[0].Spec.NotAfter = durationpb.New(lifetime), timestamppb.New(start.Add(end))
		}
	}
	alone := func(t *fleet.ClusterAggregate) {
		t.RevokeAlone(t.Credentials[0], &csv1.BreakGlassCredentialRevocation{Uid: "v1"})
	}
	deleteCluster := func(t *fleet.ClusterAggregate) { t.Cluster.DeleteTime = start }
	empty := func(t *fleet.ClusterAggregate) { t.Works = nil }
	tests := map[string]struct {
		reason string
		steps  []func(*fleet.ClusterAggregate)
		state  csv1.BreakGlassCredentialState
		// works is the number of works of credentials and revocations that are not being deleted.
		works int
	}{
		"Requested":           {"the control plane has not signed it", nil, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 1},
		"Signed, no server":   {"without its authority the API server cannot be used", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Certificate = certificate })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 1},
		"Issued":              {"the request is no longer needed", []func(*fleet.ClusterAggregate){issue}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"For another key":     {"the requester does not have the key", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Certificate, o.ServingCA = foreign, "ca" })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Denied":              {"the control plane denied the request", []func(*fleet.ClusterAggregate){answer(func(o *feedback.Observed) { o.Conditions = map[string]feedback.Condition{"Denied": {Status: "True"}} })}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Refused by Maestro":  {"Maestro permanently rejects the request", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.CredentialWork, uid).Refused = true }}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Revoked if pending":  {"it is canceled before the signer is replaced", []func(*fleet.ClusterAggregate){revoke(customer)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 0},
		"Request deleted":     {"the revocation starts after that", []func(*fleet.ClusterAggregate){revoke(customer), gone(fleet.CredentialWork, uid)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 1},
		"Other class revoked": {"a revocation affects only its class", []func(*fleet.ClusterAggregate){revoke(sre)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, 2},
		"Being revoked":       {"the API server may still accept it", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION, 1},
		"Revoked": {"the API server refuses its signer", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer), condition(feedback.PreviousCertificatesRevoked, "True")},
			csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
		"Revocation fails": {"the credential is still valid", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), revoke(customer), condition(feedback.SignerClassValid, "False")},
			csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"Revoked alone, pending": {"it is canceled like one whose class is revoked", []func(*fleet.ClusterAggregate){alone}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 0},
		"Revoked alone":          {"the API server accepts the certificate until it expires", []func(*fleet.ClusterAggregate){issue, alone}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION, 0},
		"Revoked alone, expired": {"the API server rejects an expired certificate", []func(*fleet.ClusterAggregate){issue, alone, func(t *fleet.ClusterAggregate) {
			t.Credentials[0].Status.ExpirationTime.Seconds = start.Unix()
		}}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
		"Revoked alone, then its class": {"the API server rejects the signer before the certificate expires", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), alone, revoke(customer),
			condition(feedback.PreviousCertificatesRevoked, "True")}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
		"Revoked alone, revocation of its class fails": {"no certificate becomes valid again", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), alone, revoke(customer),
			condition(feedback.SignerClassValid, "False")}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION, 0},
		"Expired": {"its expiration time has passed", []func(*fleet.ClusterAggregate){issue, func(t *fleet.ClusterAggregate) {
			t.Credentials[0].Status.ExpirationTime.Seconds = start.Unix()
		}}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED, 0},
		"Elevation continues":  {"the certificate ends before the elevation", []func(*fleet.ClusterAggregate){limit(time.Hour, 61*time.Minute), issue}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"Elevation ends first": {"the certificate would be valid after the elevation", []func(*fleet.ClusterAggregate){limit(56*time.Minute, 59*time.Minute), issue}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Not signed in time":   {"a certificate that is signed from now on would be valid after the elevation", []func(*fleet.ClusterAggregate){limit(time.Hour, time.Hour)}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Not published in time": {"the same, before the control plane was available", []func(*fleet.ClusterAggregate){limit(time.Hour, time.Hour), func(t *fleet.ClusterAggregate) {
			t.Works = slices.DeleteFunc(t.Works, func(w *fleet.Work) bool { return w.Kind == fleet.CredentialWork })
			t.Credentials[0].Status.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING
		}}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, 0},
		"Deleting, pending": {"the control plane will not sign it", []func(*fleet.ClusterAggregate){deleteCluster}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED, 0},
		"Deleting, issued":  {"its API server still runs", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), deleteCluster}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, 0},
		"Cluster deleted":   {"no API server accepts it", []func(*fleet.ClusterAggregate){issue, gone(fleet.CredentialWork, uid), deleteCluster, empty}, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			observe(aggregate.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Completed"))
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

// FuzzParseRequest verifies that every accepted request is signed with its own key.
func FuzzParseRequest(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if request, err := fleet.ParseRequest(text); err == nil && request.CheckSignature() != nil {
			t.Errorf("accepted %q", text)
		}
	})
}

// issued is the content of a certificate and of its issuer.
type issued struct {
	issuer   string
	template x509.Certificate
}

// newIssued returns the certificate that the control plane of these tests issues for the request of signed.
func newIssued(notAfter time.Time) *issued {
	return &issued{"ocm-test-" + fleet.ClusterID(clusterUID) + "-p_customer-system-admin-signer@1", x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: requestedSubject, NotBefore: start, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}}
}

var requestedSubject = pkix.Name{CommonName: "system:customer-break-glass:x", Organization: []string{"system:masters"}}

// sign signs the certificate for a key.
func (i *issued) sign(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der := must.Get(x509.CreateCertificate(rand.Reader, &i.template, &x509.Certificate{Subject: pkix.Name{CommonName: i.issuer}}, key.Public(), newKey(t)))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func newRequest(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	csr := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: requestedSubject}, key))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))
}

// signed returns a certificate signing request and a certificate, for the same key or for different keys.
func signed(t *testing.T, same bool, notAfter time.Time) (request, certificate string) {
	t.Helper()
	key := newKey(t)
	request = newRequest(t, key)
	if !same {
		key = newKey(t)
	}
	return request, newIssued(notAfter).sign(t, key)
}

// TestReportedCertificatesAreChecked changes one property of a certificate that an agent reports.
func TestReportedCertificatesAreChecked(t *testing.T) {
	const uid = "c1"
	key := newKey(t)
	request := newRequest(t, key)
	tests := map[string]struct {
		change func(*issued)
		// field is in the message; empty if the certificate is accepted.
		field string
	}{
		"as requested":         {func(*issued) {}, ""},
		"slow clock":           {func(i *issued) { i.template.NotAfter = start.Add(time.Hour + 4*time.Minute) }, ""},
		"not PEM":              {nil, "certificate:"},
		"another namespace":    {func(i *issued) { i.issuer = "ocm-test-other-p_customer-system-admin-signer@1" }, "certificate.issuer.commonName:"},
		"another class":        {func(i *issued) { i.issuer = strings.Replace(i.issuer, "_customer", "_sre", 1) }, "certificate.issuer.commonName:"},
		"another signer":       {func(i *issued) { i.issuer = "root-ca" }, "certificate.issuer.commonName:"},
		"another name":         {func(i *issued) { i.template.Subject.CommonName = "system:admin" }, "certificate.subject.commonName:"},
		"further organization": {func(i *issued) { i.template.Subject.Organization = []string{"system:masters", "system:nodes"} }, "certificate.subject.organization:"},
		"no organization":      {func(i *issued) { i.template.Subject.Organization = nil }, "certificate.subject.organization:"},
		"authority":            {func(i *issued) { i.template.IsCA, i.template.BasicConstraintsValid = true, true }, "certificate.isCA:"},
		"signs certificates":   {func(i *issued) { i.template.KeyUsage |= x509.KeyUsageCertSign }, "certificate.isCA:"},
		"alternative name":     {func(i *issued) { i.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, "certificate.subjectAltName:"},
		"server":               {func(i *issued) { i.template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "certificate.extKeyUsage:"},
		"client and server": {func(i *issued) { i.template.ExtKeyUsage = append(i.template.ExtKeyUsage, x509.ExtKeyUsageServerAuth) },
			"certificate.extKeyUsage:"},
		"any purpose": {func(i *issued) { i.template.ExtKeyUsage = nil }, "certificate.extKeyUsage:"},
		"longer":      {func(i *issued) { i.template.NotAfter = start.Add(time.Hour + 6*time.Minute) }, "certificate.notAfter:"},
		"not yet":     {func(i *issued) { i.template.NotBefore = start.Add(6 * time.Minute) }, "certificate.notBefore:"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := "not a certificate"
			if tc.change != nil {
				certificate := newIssued(start.Add(time.Hour))
				tc.change(certificate)
				text = certificate.sign(t, key)
			}
			aggregate := placed(t)
			observe(aggregate.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Completed"))
			aggregate.Credentials = []*fleet.Credential{{UID: uid,
				Spec:   &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, CertificateSigningRequest: request, Lifetime: durationpb.New(time.Hour)},
				Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}}
			settle(t, aggregate, nil)
			report := applied("")
			report.Certificate, report.ServingCA = text, "ca"
			observe(aggregate.Work(fleet.CredentialWork, uid), report)
			settle(t, aggregate, nil)
			credential := aggregate.Credentials[0]
			want, reason, message := csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, "Signed", ""
			if tc.field != "" {
				want, reason, message = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, "WrongCertificate", tc.field
			}
			found := false
			for _, condition := range credential.Status.GetConditions() {
				if condition.GetType() == "Issued" {
					found = condition.GetReason() == reason && strings.HasPrefix(condition.GetMessage(), message)
				}
			}
			if credential.State() != want || !found {
				t.Errorf("%s %v, want %s with reason %s about %q", credential.State(), credential.Status.GetConditions(), want, reason, message)
			}
			if tc.field != "" && credential.Status.GetCertificate() != "" {
				t.Error("the refused certificate is returned")
			}
		})
	}
}

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
