package app_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func authRequest(cluster *csv1.ApplyClusterRequest, name string, generation int64) *csv1.ApplyExternalAuthRequest {
	return &csv1.ApplyExternalAuthRequest{Uid: uuid.NewSHA1(uuid.NameSpaceOID, []byte(cluster.Uid+name)).String(), ClusterUid: cluster.Uid, Generation: generation,
		ResourceId: cluster.ResourceId + "/externalAuths/" + name,
		Spec: &csv1.ExternalAuthSpec{Name: name, Issuer: &csv1.TokenIssuer{Url: "https://login.example.com/tenant", Audiences: []string{"console-id", "cli-id"}},
			Clients: []*csv1.OidcClient{
				{ComponentName: "console", ComponentNamespace: "openshift-console", ClientId: "console-id", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL},
				{ComponentName: "cli", ComponentNamespace: "openshift-console", ClientId: "cli-id", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC}},
			ClaimMappings: &csv1.ClaimMappings{Username: &csv1.UsernameMapping{Claim: "email", PrefixPolicy: csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX},
				Groups: &csv1.GroupsMapping{Claim: "groups"}}}}
}

// signingRequest generates a key and returns a certificate signing request for it.
func signingRequest(t *testing.T, subject pkix.Name) string {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

const (
	customer = csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER
	sre      = csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	// sreName is the common name of the engineer of package intenttest.
	sreName = "system:sre-break-glass:alice"
)

func credentialRequest(t *testing.T, cluster *csv1.ApplyClusterRequest, class csv1.BreakGlassClass) *csv1.ApplyBreakGlassCredentialRequest {
	t.Helper()
	name, lifetime, level := "system:customer-break-glass:system-admin", (*durationpb.Duration)(nil), csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_UNSPECIFIED
	if class == sre {
		name, lifetime, level = sreName, durationpb.New(12*time.Minute), csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN
	}
	return &csv1.ApplyBreakGlassCredentialRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, Spec: &csv1.BreakGlassCredentialSpec{Class: class, Lifetime: lifetime, Level: level,
		CertificateSigningRequest: signingRequest(t, pkix.Name{CommonName: name, Organization: []string{"system:masters"}}), Requester: "ada@example.com", Reason: "incident 1"}}
}

func revokeRequest(cluster *csv1.ApplyClusterRequest, class csv1.BreakGlassClass) *csv1.RevokeBreakGlassCredentialsRequest {
	return &csv1.RevokeBreakGlassCredentialsRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, Class: class, Requester: "ada@example.com", Reason: "incident 1"}
}

func (i *instance) awaitAuth(t *testing.T, uid string, phase csv1.ExternalAuthPhase, generation int64) *csv1.ExternalAuth {
	t.Helper()
	return await(t, i, uid, (*csv1.WatchResponse).GetExternalAuth, func(a *csv1.ExternalAuth) bool {
		return a.GetStatus().GetPhase() == phase && a.GetStatus().GetObservedGeneration() == generation
	})
}

func (i *instance) awaitCredential(t *testing.T, uid string, states ...csv1.BreakGlassCredentialState) *csv1.BreakGlassCredential {
	t.Helper()
	return await(t, i, uid, (*csv1.WatchResponse).GetBreakGlassCredential, func(c *csv1.BreakGlassCredential) bool {
		return slices.Contains(states, c.GetStatus().GetState())
	})
}

// applyAuth applies an external authentication and waits for a phase with an observed generation.
func (i *instance) applyAuth(t *testing.T, request *csv1.ApplyExternalAuthRequest, phase csv1.ExternalAuthPhase, generation int64) *csv1.ExternalAuth {
	t.Helper()
	must.Get(i.ApplyExternalAuth(t.Context(), request))(t)
	return i.awaitAuth(t, request.Uid, phase, generation)
}

func (i *instance) awaitRevocation(t *testing.T, uid string, state csv1.BreakGlassRevocationState) *csv1.BreakGlassRevocation {
	t.Helper()
	return await(t, i, uid, (*csv1.WatchResponse).GetBreakGlassRevocation, func(v *csv1.BreakGlassRevocation) bool {
		return v.GetStatus().GetState() == state
	})
}

// issue requests a credential of a class and waits until it is issued.
func (i *instance) issue(t *testing.T, cluster *csv1.ApplyClusterRequest, class csv1.BreakGlassClass) (*csv1.ApplyBreakGlassCredentialRequest, *csv1.BreakGlassCredential) {
	t.Helper()
	request := credentialRequest(t, cluster, class)
	must.Get(i.ApplyBreakGlassCredential(t.Context(), request))(t)
	return request, i.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
}

// onlyWorks checks that Maestro holds exactly the works of one cluster whose names have these suffixes.
func (r *region) onlyWorks(id string, suffixes ...string) {
	r.t.Helper()
	slices.Sort(suffixes)
	eventually.Soon(r.t, "Maestro holds exactly the works of one cluster", func() error {
		var names []string
		for _, held := range r.maestro.Resources() {
			names = append(names, strings.TrimPrefix(held.Name, id))
		}
		slices.Sort(names)
		if !slices.Equal(names, suffixes) {
			return fmt.Errorf("Maestro holds works %q, want %q", names, suffixes)
		}
		return nil
	})

}

func TestExternalAuthLifecycle(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, ready := service.createReady(t, "c")

	request := authRequest(cluster, "Entra", 1)
	created := must.Get(service.ApplyExternalAuth(ctx, request))(t)
	if got := created.GetStatus().GetPhase(); got != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING {
		t.Errorf("a new external authentication is %v, want installing", got)
	}
	awaiting := service.awaitAuth(t, request.Uid, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1)
	if secrets := awaiting.GetStatus().GetAwaitedSecrets(); len(secrets) != 1 || secrets[0].GetName() != "entra-console-openshift-console" ||
		secrets[0].GetNamespace() != "openshift-config" || secrets[0].GetKey() != "clientSecret" {
		t.Errorf("awaited secrets %v", secrets)
	}
	r.hypershift.ProvideSecrets(true)
	r.maestro.Touch()
	service.awaitAuth(t, request.Uid, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1)

	if _, err := service.ApplyExternalAuth(ctx, authRequest(cluster, "Other", 1)); reasonOf(err) != "EXTERNAL_AUTH_EXISTS" {
		t.Errorf("second external authentication of a cluster: %v", err)
	}
	request.Generation, request.Spec.Clients = 2, nil
	service.applyAuth(t, request, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 2)
	if c, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid}); err != nil || !clusterReady(1)(c) {
		t.Errorf("the cluster is %v, %v; its external authentication must not affect it", c.GetStatus().GetPhase(), err)
	}

	must.Get(service.DeleteExternalAuth(ctx, &csv1.DeleteExternalAuthRequest{Uid: request.Uid}))(t)
	service.awaitAuth(t, request.Uid, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, 2)
	for _, held := range r.maestro.Resources() {
		for _, manifest := range held.Manifests {
			if strings.Contains(string(manifest), "oidcProviders") {
				t.Errorf("%s still has an OIDC provider", held.Name)
			}
		}
	}
	if _, err := service.ApplyExternalAuth(ctx, request); reasonOf(err) != "UID_DELETED" {
		t.Errorf("a late apply: %v", err)
	}

	// An external authentication is deleted with its cluster.
	again := authRequest(cluster, "Other", 1)
	must.Get(service.ApplyExternalAuth(ctx, again))(t)
	service.removed(t, cluster.Uid)
	a, err := service.GetExternalAuth(ctx, &csv1.GetExternalAuthRequest{Uid: again.Uid})
	if err != nil || a.GetStatus().GetPhase() != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED {
		t.Errorf("external authentication after the deletion of its cluster: %v, %v", a.GetStatus(), err)
	}
	r.onlyWorks(ready.GetStatus().GetClusterId())
}

func TestBreakGlassLifecycle(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()

	first, engineer := credentialRequest(t, cluster, customer), credentialRequest(t, cluster, sre)
	for _, request := range []*csv1.ApplyBreakGlassCredentialRequest{first, engineer, first} {
		must.Get(service.ApplyBreakGlassCredential(ctx, request))(t)
	}
	issued := service.awaitCredential(t, first.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED).GetStatus()
	if issued.GetApiUrl() != ready.GetStatus().GetApiUrl() || !strings.Contains(issued.GetServingCertificateAuthority(), "BEGIN CERTIFICATE") {
		t.Errorf("issued with API URL %q and serving CA %q", issued.GetApiUrl(), issued.GetServingCertificateAuthority())
	}
	if authority := ready.GetStatus().GetServingCertificateAuthority(); authority != issued.GetServingCertificateAuthority() {
		t.Errorf("the cluster has the serving CA %q, the credential %q", authority, issued.GetServingCertificateAuthority())
	}
	if left := time.Until(issued.GetExpirationTime().AsTime()); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the certificate is valid for %s, want a day", left)
	}
	service.awaitCredential(t, engineer.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
	// The signing request is removed after the certificate was issued.
	r.onlyWorks(id, "", "-00-namespaces")

	// A pending credential is cancelled by the revocation, and its request is removed before the signer is replaced.
	r.hypershift.Hold(true)
	pending := credentialRequest(t, cluster, customer)
	must.Get(service.ApplyBreakGlassCredential(ctx, pending))(t)
	r.onlyWorks(id, "", "-00-namespaces", "-credential-"+pending.Uid)
	revoke := revokeRequest(cluster, customer)
	for range 2 {
		must.Get(service.RevokeBreakGlassCredentials(ctx, revoke))(t)
	}
	service.awaitCredential(t, pending.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED)
	service.awaitCredential(t, first.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION)
	service.awaitRevocation(t, revoke.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING)
	r.onlyWorks(id, "", "-00-namespaces", "-revocation-"+revoke.Uid)
	history := r.maestro.History()
	if slices.Index(history, "gone "+id+"-credential-"+pending.Uid) > slices.Index(history, "create "+id+"-revocation-"+revoke.Uid) {
		t.Errorf("the revocation started before the cancelled request was removed: %v", history)
	}
	if _, err := service.ApplyBreakGlassCredential(ctx, credentialRequest(t, cluster, customer)); reasonOf(err) != "REVOCATION_IN_PROGRESS" ||
		apierror.As(apierror.FromGRPC(err)).RetryAfter == 0 {
		t.Errorf("request during a revocation: %v", err)
	}
	if _, err := service.RevokeBreakGlassCredentials(ctx, revokeRequest(cluster, customer)); reasonOf(err) != "REVOCATION_IN_PROGRESS" {
		t.Errorf("second revocation: %v", err)
	}
	if known, err := service.ApplyBreakGlassCredential(ctx, first); err != nil || known.GetUid() != first.Uid {
		t.Errorf("repeated request: %v", err)
	}
	r.continueSigning()
	done := service.awaitRevocation(t, revoke.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED)
	if done.GetStatus().GetCompletionTime() == nil || len(done.GetStatus().GetConditions()) != 6 {
		t.Errorf("the revocation ended as %v", done.GetStatus())
	}
	service.awaitCredential(t, first.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	other, err := service.GetBreakGlassCredential(ctx, &csv1.GetBreakGlassCredentialRequest{Uid: engineer.Uid})
	if err != nil || other.GetStatus().GetState() != csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED {
		t.Errorf("the other class's credential is %v, %v", other.GetStatus().GetState(), err)
	}
	r.onlyWorks(id, "", "-00-namespaces")

	after, _ := service.issue(t, cluster, customer)

	// The deletion of the cluster ends everything: issued credentials stop working, pending ones fail, a running
	// revocation is cancelled.
	r.hypershift.Hold(true)
	late, running := credentialRequest(t, cluster, customer), revokeRequest(cluster, sre)
	must.Get(service.ApplyBreakGlassCredential(ctx, late))(t)
	must.Get(service.RevokeBreakGlassCredentials(ctx, running))(t)
	r.onlyWorks(id, "", "-00-namespaces", "-credential-"+late.Uid, "-revocation-"+running.Uid)
	service.removed(t, cluster.Uid)
	r.onlyWorks(id)
	service.awaitCredential(t, late.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED)
	service.awaitCredential(t, after.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	service.awaitCredential(t, engineer.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	service.awaitRevocation(t, running.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED)
	if _, err := service.ApplyBreakGlassCredential(ctx, credentialRequest(t, cluster, customer)); reasonOf(err) != "CLUSTER_DELETING" {
		t.Errorf("request for a deleted cluster: %v", err)
	}
	list, err := service.ListBreakGlassCredentials(ctx, &csv1.ListBreakGlassCredentialsRequest{ClusterUid: cluster.Uid})
	if err != nil || len(list.GetCredentials()) != 5 {
		t.Errorf("listed %d credentials, %v; want all 5", len(list.GetCredentials()), err)
	}
	revocations, err := service.ListBreakGlassRevocations(ctx, &csv1.ListBreakGlassRevocationsRequest{ClusterUid: cluster.Uid,
		States: []csv1.BreakGlassRevocationState{csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED}})
	if err != nil || len(revocations.GetRevocations()) != 1 {
		t.Errorf("listed %d revocations that succeeded, %v; want 1", len(revocations.GetRevocations()), err)
	}
}

// TestCredentialWaitsForItsCluster requests a credential before there is a control plane that can sign.
func TestCredentialWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	service := r.start(nil)
	cluster := applyRequest("c", 1)
	must.Get(service.ApplyCluster(t.Context(), cluster))(t)
	request := credentialRequest(t, cluster, customer)
	c, err := service.ApplyBreakGlassCredential(t.Context(), request)
	if err != nil || c.GetStatus().GetProgress()[0].GetState() != "WaitingForControlPlane" {
		t.Fatalf("%v, %v; want it pending", c.GetStatus(), err)
	}
	auth := authRequest(cluster, "ea", 1)
	must.Get(service.ApplyExternalAuth(t.Context(), auth))(t)
	r.play()
	service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
	service.awaitAuth(t, auth.Uid, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, 1)
}

func TestRejectedCredentialFails(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	request := credentialRequest(t, cluster, customer)
	request.Spec.CertificateSigningRequest = signingRequest(t, pkix.Name{CommonName: "system:customer-break-glass:system-admin",
		Organization: []string{"system:masters"}, OrganizationalUnit: []string{"refused"}})
	must.Get(service.ApplyBreakGlassCredential(t.Context(), request))(t)
	failed := service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED)
	last := failed.GetStatus().GetConditions()[len(failed.GetStatus().GetConditions())-1]
	if last.GetType() != "Issued" || last.GetStatus() != "False" || last.GetReason() != "SignerValidationFailure" {
		t.Errorf("conditions %v", failed.GetStatus().GetConditions())
	}
}

// TestAccessErrors checks the rejected requests of external authentications and credentials.
func TestAccessErrors(t *testing.T) {
	t.Parallel()
	service := newRegion(t).start(nil)
	ctx := t.Context()
	cluster := applyRequest("c", 1)
	must.Get(service.ApplyCluster(ctx, cluster))(t)
	auth := func(change func(*csv1.ApplyExternalAuthRequest)) func() error {
		request := authRequest(cluster, "ea", 1)
		change(request)
		return failure(ctx, service.ApplyExternalAuth, request)
	}
	known := credentialRequest(t, cluster, customer)
	must.Get(service.ApplyBreakGlassCredential(ctx, known))(t)
	credentialOf := func(class csv1.BreakGlassClass, change func(*csv1.ApplyBreakGlassCredentialRequest)) func() error {
		request := credentialRequest(t, cluster, class)
		change(request)
		return failure(ctx, service.ApplyBreakGlassCredential, request)
	}
	credential := func(change func(*csv1.ApplyBreakGlassCredentialRequest)) func() error {
		return credentialOf(customer, change)
	}
	level := func(level csv1.BreakGlassLevel) func() error {
		return credentialOf(sre, func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Spec.Level = level })
	}
	revocation := func(class csv1.BreakGlassClass, change func(*csv1.RevokeBreakGlassCredentialsRequest)) func() error {
		request := revokeRequest(cluster, class)
		change(request)
		return failure(ctx, service.RevokeBreakGlassCredentials, request)
	}
	csr := func(subject pkix.Name) func() error {
		return credential(func(r *csv1.ApplyBreakGlassCredentialRequest) {
			r.Spec.CertificateSigningRequest = signingRequest(t, subject)
		})
	}
	const request = "spec.certificate_signing_request"
	checkErrors(t, map[string]errorCase{
		"Auth, several fields": {"all wrong fields are named at once", auth(func(r *csv1.ApplyExternalAuthRequest) {
			r.Spec.Issuer.Url, r.Spec.Issuer.CertificateAuthority, r.Spec.ClaimMappings.Username.Prefix = "http://x", "no PEM", "p"
		}), codes.InvalidArgument, "spec.issuer.url spec.issuer.certificate_authority spec.claim_mappings.username.prefix"},
		"Auth, private key as CA": {"nothing but certificates goes to a management cluster", auth(func(r *csv1.ApplyExternalAuthRequest) {
			r.Spec.Issuer.CertificateAuthority = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}), codes.InvalidArgument, "spec.issuer.certificate_authority"},
		"Auth, foreign client": {"tokens for it would be refused", auth(func(r *csv1.ApplyExternalAuthRequest) { r.Spec.Clients[0].ClientId = "other" }),
			codes.InvalidArgument, "spec.clients[0].client_id"},
		"Auth, client twice":        {"HyperShift keeps one per component", auth(func(r *csv1.ApplyExternalAuthRequest) { r.Spec.Clients[1].ComponentName = "console" }), codes.InvalidArgument, "spec.clients[1]"},
		"Auth, no audiences":        {"a token must be for somebody", auth(func(r *csv1.ApplyExternalAuthRequest) { r.Spec.Issuer.Audiences, r.Spec.Clients = nil, nil }), codes.InvalidArgument, "spec.issuer.audiences"},
		"Auth, unknown cluster":     {"its cluster was not applied yet", auth(func(r *csv1.ApplyExternalAuthRequest) { r.ClusterUid = uuid.NewString() }), codes.FailedPrecondition, "CLUSTER_UNKNOWN"},
		"Auth, unknown":             {"nothing is known of it", failure(ctx, service.GetExternalAuth, &csv1.GetExternalAuthRequest{Uid: uuid.NewString()}), codes.NotFound, "EXTERNAL_AUTH_UNKNOWN"},
		"Credential, another user":  {"a customer is one user", csr(pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}), codes.InvalidArgument, request},
		"Credential, class of SREs": {"the name is of the other class", csr(pkix.Name{CommonName: "system:sre-break-glass:x", Organization: []string{"system:masters"}}), codes.InvalidArgument, request},
		"Credential, another group": {"the signer does not look at groups", csr(pkix.Name{CommonName: "system:customer-break-glass:system-admin", Organization: []string{"system:masters", "x"}}), codes.InvalidArgument, request},
		"Credential, level of a customer": {"a customer has one level", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) {
			r.Spec.Level = csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN
		}), codes.InvalidArgument, "spec.level"},
		"Credential, SRE without level": {"no level is the default", level(csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_UNSPECIFIED), codes.InvalidArgument, "spec.level"},
		"Credential, unknown level":     {"a level is one that exists", level(9), codes.InvalidArgument, "spec.level"},
		"Credential, reader as admin":   {"the certificate would give more than the level", level(csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER), codes.InvalidArgument, request},
		"Credential, no request":        {"there is no key to certify", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Spec.CertificateSigningRequest = "x" }), codes.InvalidArgument, request},
		"Credential, too long":          {"it lives a day at most", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Spec.Lifetime = durationpb.New(25 * time.Hour) }), codes.InvalidArgument, "spec.lifetime"},
		"Credential, nobody":            {"who asked is recorded", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Spec.Requester = "" }), codes.InvalidArgument, "spec.requester"},
		"Credential, another again":     {"a uid is one credential", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Uid = known.Uid }), codes.InvalidArgument, "spec"},
		"Credential, unknown cluster": {"its cluster was not applied yet", credential(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.ClusterUid = uuid.NewString() }),
			codes.FailedPrecondition, "CLUSTER_UNKNOWN"},
		"Credential, unknown":            {"nothing is known of it", failure(ctx, service.GetBreakGlassCredential, &csv1.GetBreakGlassCredentialRequest{Uid: uuid.NewString()}), codes.NotFound, "BREAK_GLASS_CREDENTIAL_UNKNOWN"},
		"Revocation, SRE without reason": {"the reason is recorded", revocation(sre, func(r *csv1.RevokeBreakGlassCredentialsRequest) { r.Reason = "" }), codes.InvalidArgument, "reason"},
		"Revocation, no class":           {"all of them are never meant", revocation(customer, func(r *csv1.RevokeBreakGlassCredentialsRequest) { r.Class = 0 }), codes.InvalidArgument, "class"},
		"Revocation, unknown":            {"nothing is known of it", failure(ctx, service.GetBreakGlassRevocation, &csv1.GetBreakGlassRevocationRequest{Uid: uuid.NewString()}), codes.NotFound, "BREAK_GLASS_REVOCATION_UNKNOWN"},
	})
	// The 50th request is accepted, the 51st exceeds the limit.
	for i := range 50 {
		_, err := service.ApplyBreakGlassCredential(ctx, credentialRequest(t, cluster, sre))
		if (i < 49) != (err == nil) || err != nil && reasonOf(err) != "TOO_MANY_CREDENTIALS" {
			t.Fatalf("credential %d: %v", i+2, err)
		}
	}
}

// errorCase is a call with the code of its error.
type errorCase struct {
	reason string
	call   func() error
	code   codes.Code
	// detail is the reason of the ErrorInfo, or the fields of the violations.
	detail string
}

func checkErrors(t *testing.T, tests map[string]errorCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.call()
			if status.Code(err) != tc.code {
				t.Fatalf("%v, want code %s: %s", err, tc.code, tc.reason)
			}
			if got := reasonOf(err); got != tc.detail {
				t.Errorf("detail %q, want %q: %s", got, tc.detail, tc.reason)
			}
		})
	}
}

// failure returns a function that makes a call and returns its error.
func failure[Request, Response any](ctx context.Context, method func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) func() error {
	return func() error {
		_, err := method(ctx, request)
		return err
	}
}

// reasonOf returns the reason of the ErrorInfo, or the fields of the violations.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e := apierror.As(apierror.FromGRPC(err))
	var details []string
	for _, v := range e.Violations {
		details = append(details, v.Field)
	}
	if e.Reason != "" {
		details = append(details, e.Reason)
	}
	return strings.Join(details, " ")
}
