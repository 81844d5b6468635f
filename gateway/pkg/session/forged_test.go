package session

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/certificaterequest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/documentfields"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
)

const (
	forgedID      = "a0000000-0000-4000-8000-00000000000a"
	forgedCluster = "c0000000-0000-4000-8000-00000000000c"
	lifetime      = 15 * time.Minute
)

var (
	owner = authn.Caller{ObjectID: "alice", TenantID: "tenant"}
	guest = authn.Caller{ObjectID: "rewritten", TenantID: "tenant"}
)

// setDocument makes a registry read a version of a document.
func setDocument(r *Registry, document *database.AccessSessionDocument) {
	copied := *document
	r.setDocument(&database.Item[database.AccessSessionDocument]{Key: document.Key(), Value: copied})
}

// tokens issues tokens for the session of alice with the management cluster mgmt-1, whatever the document of the session contains.
type tokens struct{ expiration time.Time }

// Grant implements Grants.
func (g tokens) Grant(_ context.Context, managementCluster string, _ grant.Request) (*grant.Grant, error) {
	if managementCluster != "mgmt-1" {
		return nil, apierror.New(apierror.PermissionDenied, "It is for another management cluster.")
	}
	signer := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, signer, signer, &key.PublicKey, key)
	return &grant.Grant{Token: "token", Server: "https://server.example", Authorities: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		ExpirationTime: g.expiration, SessionID: forgedID, ObjectID: owner.ObjectID, TenantID: owner.TenantID, ElevationID: "elevation", Mode: adminv1.AccessRead}, err
}

// scene is a registry, the document of alice's session as admin has written it, and what makes the session ready.
type scene struct {
	*Registry
	clock    clocktest.Clock
	log      *logtest.Log
	document database.AccessSessionDocument
	// authorize issues the credential of the session; a token is issued when the document has the intent. It returns when the registry has both.
	authorize func()
}

// newScene returns a scene for a cluster, or for a management cluster.
func newScene(t *testing.T, management bool) *scene {
	t.Helper()
	clock, log := clocktest.New(), &logtest.Log{}
	sealing, opening, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	now := clock.Now().UTC()
	s := &scene{clock: clock, log: log, document: database.AccessSessionDocument{SessionID: forgedID, ClusterUID: forgedCluster, ResourceID: "/subscriptions/s", Mode: string(adminv1.AccessRead),
		State: database.AccessSessionRequested, RequestTime: now, RequestExpirationTime: now.Add(2 * time.Minute), ElevationExpirationTime: now.Add(time.Hour),
		Owner: database.AdminActor{Name: "alice@example.com", ObjectID: owner.ObjectID, TenantID: owner.TenantID, Role: "operator", ElevationID: "elevation", Reason: "it is slow", Ticket: "INC-1"}}}
	s.Registry = NewRegistry(Options{Keys: opening, Grants: tokens{now.Add(lifetime)}, Clock: clock, Log: slog.New(slog.NewJSONHandler(log, nil)), Metrics: prometheus.NewRegistry()})
	t.Cleanup(func() {
		s.mu.Lock()
		for id, e := range s.entries {
			s.forget(id, e, "the test ends")
		}
		s.mu.Unlock()
		s.requests.Wait()
	})
	if management {
		s.document.ClusterUID, s.document.ResourceID, s.document.Shard = "", "", "mgmt-1"
		s.document.Intent, s.document.Parameters = "intent", json.RawMessage(`{}`)
		s.authorize = s.requests.Wait
		return s
	}
	key, asked, err := certificaterequest.New(hostedreport.EngineerPrefix+owner.ObjectID, adminv1.LevelReader.Organization())
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := sealing.Seal(s.document.KeyPurpose(), key)
	if err != nil {
		t.Fatal(err)
	}
	s.document.SealedKeys = [][]byte{sealed}
	certificate := sign(t, asked, now.Add(lifetime))
	s.authorize = func() {
		s.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: forgedCluster,
			Status: &clusterservicev1.ClusterStatus{ApiUrl: "https://server.example", ServingCertificateAuthority: certificate}}}})
		s.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_BreakGlassCredential{BreakGlassCredential: &clusterservicev1.BreakGlassCredential{
			Uid: forgedID, ClusterUid: forgedCluster, CreateTime: timestamppb.New(now), Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE,
				Level: clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER, Elevation: "elevation", NotAfter: timestamppb.New(now.Add(time.Hour))},
			Status: &clusterservicev1.BreakGlassCredentialStatus{State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, Certificate: certificate}}}})
		s.requests.Wait()
	}
	return s
}

// sign returns the certificate of a certificate signing request. Both are PEM.
func sign(t *testing.T, asked []byte, end time.Time) string {
	t.Helper()
	block, _ := pem.Decode(asked)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: request.Subject, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}}, request.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// permitted returns the sessions in which a caller's requests are forwarded.
func (s *scene) permitted(caller authn.Caller) (found []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.session.Backend() != nil && e.session.OwnedBy(caller) {
			found = append(found, e.session)
		}
	}
	return found
}

// TestRewrittenFieldsAuthorizeNothing rewrites each field of the documents of a session for a cluster and of one for a management cluster, in each order of the
// versions. A field that authorizes is one that the credential or the token confirms; others describe the session in the audit. The fields that programs of the region
// change do neither.
func TestRewrittenFieldsAuthorizeNothing(t *testing.T) {
	changing := []string{"state", "sealedKeys", "intent", "parameters", "readyTime", "expirationTime", "certificateFingerprint", "endTime", "endedBy", "endReason", "objects", "unresolved"}
	for kind, tc := range map[string]struct {
		management bool
		// confirmed are the fields that the credential or the token confirms.
		confirmed []string
	}{
		"cluster":            {false, []string{"sessionId", "clusterUid", "shard", "mode", "owner.objectId", "owner.elevationId"}},
		"management cluster": {true, []string{"sessionId", "shard", "mode", "owner.objectId", "owner.tenantId", "owner.elevationId"}},
	} {
		values := map[string]any{"state": database.AccessSessionReady, "mode": adminv1.AccessAdmin}
		documentfields.Each(t, values, func(name string, rewrite func(*database.AccessSessionDocument)) {
			if slices.Contains(changing, name) {
				t.Run(fmt.Sprintf("%s/%s", kind, name), func(t *testing.T) { testChangingField(t, newScene(t, tc.management), rewrite) })
				return
			}
			for order, steps := range map[string]string{
				"only the rewritten version":      "R+",
				"rewritten, original, credential": "RO+",
				"original, rewritten, credential": "OR+",
				"changed and changed back":        "ORO+",
				"rewritten, credential, original": "R+O",
				"after the credential":            "O+R",
				"after it, and changed back":      "O+RO",
				"after it, twice":                 "O+ROR",
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", kind, name, order), func(t *testing.T) {
					s := newScene(t, tc.management)
					testConstantField(t, s, name, steps, slices.Contains(tc.confirmed, name), rewrite)
				})
			}
		})
	}
}

// testConstantField makes a registry read the original version O, the rewritten one R and the credential + in an order.
func testConstantField(t *testing.T, s *scene, name, steps string, confirmed bool, rewrite func(*database.AccessSessionDocument)) {
	rewritten := s.document
	rewrite(&rewritten)
	var before []*Session
	for i, step := range steps {
		switch step {
		case 'O':
			setDocument(s.Registry, &s.document)
		case 'R':
			before = s.permitted(owner)
			setDocument(s.Registry, &rewritten)
		case '+':
			s.authorize()
		}
		for _, open := range s.permitted(guest) {
			t.Errorf("after %s, the guest uses the session %+v", steps[:i+1], open)
		}
	}
	if name == "sessionId" {
		// The rewritten version is the document of another session, which has no credential. It does not affect this one.
		if open := s.permitted(owner); len(open) > 1 || len(open) == 1 && open[0].ID != forgedID {
			t.Errorf("the owner uses the sessions %+v", open)
		}
		return
	}
	open := s.permitted(owner)
	if !strings.Contains(steps, "O") {
		// Nothing has changed. The session is ready if the credential does not contradict it. It has the tenant in no certificate: callers have that of the issuer.
		if ready := len(open) == 1; ready == (confirmed || name == "owner.tenantId") {
			t.Errorf("the owner uses the sessions %+v", open)
		}
		return
	}
	if len(open) > 0 {
		t.Errorf("the owner uses the sessions %+v", open)
	}
	for _, ended := range before {
		if context.Cause(ended.Context()) == nil || ended.Backend() != nil {
			t.Error("the requests of the session have not ended")
		}
	}
	if left, reason := s.Get(forgedID); left != nil || reason == "" {
		t.Errorf("the session is %+v: %s", left, reason)
	}
	changed, unverified := testutil.ToFloat64(s.forged.WithLabelValues(forgedChanged)), testutil.ToFloat64(s.forged.WithLabelValues(forgedUnverified))
	records := strings.Count(s.log.String(), `"an access session is forged"`)
	// The other management cluster may have refused a token before the change, which ends the session as well.
	if refused := strings.HasPrefix(steps, "R") && name == "shard" && s.document.Shard != ""; !refused && (changed+unverified != 1 || records != 1) {
		t.Errorf("%v changed and %v unverified sessions are counted, with %d records", changed, unverified, records)
	}
}

// testChangingField rewrites a field that programs change, before and after the credential. The session remains that of its owner, and ends in time.
func testChangingField(t *testing.T, s *scene, rewrite func(*database.AccessSessionDocument)) {
	rewritten := s.document
	rewrite(&rewritten)
	setDocument(s.Registry, &s.document)
	s.authorize()
	before := s.permitted(owner)
	if len(before) != 1 {
		t.Fatalf("the owner uses the sessions %+v", before)
	}
	setDocument(s.Registry, &rewritten)
	if open := s.permitted(guest); len(open) > 0 {
		t.Errorf("the guest uses the sessions %+v", open)
	}
	s.clock.Step(lifetime)
	eventually.Soon(t, "the session has ended", func() error {
		if open := s.permitted(owner); len(open) > 0 {
			return fmt.Errorf("the owner uses the sessions %+v", open)
		}
		return nil
	})
}

// TestForgedSessionStaysRefused forgets why a forged session has ended, as the registry does after the ends of many others. The session is refused nevertheless.
func TestForgedSessionStaysRefused(t *testing.T) {
	s := newScene(t, false)
	rewritten := s.document
	rewritten.Owner.ObjectID = guest.ObjectID
	setDocument(s.Registry, &rewritten)
	setDocument(s.Registry, &s.document)
	delete(s.ended, forgedID)
	setDocument(s.Registry, &s.document)
	s.authorize()
	if open := append(s.permitted(owner), s.permitted(guest)...); len(open) > 0 {
		t.Errorf("the sessions %+v are used", open)
	}
}
