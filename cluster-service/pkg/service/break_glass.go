package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

const (
	// maxPending bounds the credentials of a cluster that wait for a signature, and maxLive those that have not ended.
	maxPending = 50
	maxLive    = 500
	// revocationRetry is the suggested retry interval for a credential that was refused because of a revocation. A
	// revocation takes seconds where API servers watch their files, and a minute or two on a real management cluster.
	revocationRetry = 5 * time.Second
	credentialRetry = 10 * time.Second

	minLifetime = 10 * time.Minute
	// maxEngineerLifetime bounds how long an API server accepts the certificate of a revoked credential of an SRE.
	maxEngineerLifetime = 15 * time.Minute

	maxRequester = 256
	maxReason    = 1024
	maxRequest   = 16 << 10
	minRSA       = 2048

	customerName = "system:customer-break-glass:system-admin"
	srePrefix    = hostedreport.EngineerPrefix
)

// ApplyBreakGlassCredential requests a credential, once per UID.
func (s *Service) ApplyBreakGlassCredential(ctx context.Context, r *csv1.ApplyBreakGlassCredentialRequest) (*csv1.BreakGlassCredential, error) {
	if err := apierror.InvalidFields(append(validateOnce(r.GetUid(), r.GetClusterUid()), validateCredentialSpec(r.GetSpec())...)); err != nil {
		return nil, s.answer(ctx, err)
	}
	asked := intent.FromContext(ctx)
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	known, err := s.o.Store.Credential(ctx, uid)
	switch {
	case err == nil:
		if err := sameCredential(known, clusterUID, r.GetSpec()); err != nil {
			return nil, s.answer(ctx, err)
		}
		return known.Proto(), nil
	case !errors.Is(err, store.ErrUnknown):
		return nil, s.answer(ctx, err)
	}
	var credential *fleet.Credential
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) (err error) {
		credential, err = s.newCredential(tx.Aggregates[clusterUID], uid, r, asked)
		return err
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return credential.Proto(), nil
}

func sameCredential(known *fleet.Credential, clusterUID string, spec *csv1.BreakGlassCredentialSpec) error {
	var c check
	c.immutable("cluster_uid", known.ClusterUID == clusterUID)
	requested := proto.CloneOf(known.Spec)
	requested.NotAfter, requested.Elevation, requested.Emergency = nil, "", false // Cluster Service sets them
	c.immutable("spec", proto.Equal(requested, spec))
	return apierror.InvalidFields(c.violations)
}

// newCredential adds a credential to a cluster. asked is the intent of the engineer who requested it; nil for a customer.
func (s *Service) newCredential(t *fleet.ClusterAggregate, uid string, r *csv1.ApplyBreakGlassCredentialRequest, asked *intent.Intent) (*fleet.Credential, error) {
	now, spec := s.o.Store.Now(), r.GetSpec()
	if c := t.Credential(uid); c != nil {
		return c, sameCredential(c, c.ClusterUID, spec)
	}
	if asked != nil {
		if err := apierror.InvalidFields(engineerViolations(now, spec, asked)); err != nil {
			return nil, err
		}
		spec = proto.CloneOf(spec)
		spec.NotAfter, spec.Elevation, spec.Emergency = timestamppb.New(asked.Elevation.ExpiresAt), asked.Elevation.ID, asked.Elevation.Emergency
		if t.ElevationRevoked(spec.Elevation) {
			return nil, failedPrecondition(ReasonElevationRevoked, "The credentials of the elevation "+spec.Elevation+" were revoked: no further one is issued for this cluster. Elevate again.")
		}
	}
	if err := wantedCluster(t); err != nil {
		return nil, err
	}
	if t.Revoking(spec.GetClass()) != nil {
		return nil, revocationInProgress()
	}
	pending, live := 0, 0
	for _, c := range t.Credentials {
		if c.Pending() {
			pending++
		}
		if !c.Gone() {
			live++
		}
	}
	if pending >= maxPending || live >= maxLive {
		return nil, apierror.New(apierror.Throttled, "The cluster has %d active credentials, %d of them not signed yet; at most %d and %d are allowed.",
			live, pending, maxLive, maxPending).WithReason(ReasonTooManyCredentials).WithRetryAfter(credentialRetry)
	}
	c := &fleet.Credential{UID: uid, ClusterUID: t.Cluster.UID, Spec: spec, CreateTime: now,
		Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}
	t.Credentials = append(t.Credentials, c)
	return c, s.settle(now, t)
}

// engineerViolations checks a request for a credential against the intent of the engineer: the certificate names the engineer and
// nobody else, it ends before the elevation, and the role of the elevation permits its level.
func engineerViolations(now time.Time, spec *csv1.BreakGlassCredentialSpec, asked *intent.Intent) []apierror.Violation {
	var c check
	if request, err := fleet.ParseRequest(spec.GetCertificateSigningRequest()); err != nil || request.Subject.CommonName != srePrefix+asked.ObjectID {
		c.fail("spec.certificate_signing_request", "Invalid value: the common name must be %s and the object ID of the engineer, %s", srePrefix, asked.ObjectID)
	}
	lifetime := fleet.DefaultLifetime
	if spec.GetLifetime() != nil {
		lifetime = spec.GetLifetime().AsDuration()
	}
	if now.Add(lifetime).After(asked.Elevation.ExpiresAt) {
		c.fail("spec.lifetime", "Invalid value: %s: the certificate must end before the elevation, which ends at %s", lifetime, asked.Elevation.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if level := fleet.Level(spec); !level.PermittedBy(adminv1.Role(asked.Elevation.Role)) {
		c.fail("spec.level", "Forbidden: the level %s requires an elevation to the role %s; the engineer's is to %s", level, level.Role(), asked.Elevation.Role)
	}
	return c.violations
}

func wantedCluster(t *fleet.ClusterAggregate) error {
	switch {
	case t.Cluster == nil:
		return failedPrecondition(ReasonClusterUnknown, "The cluster does not exist in Cluster Service yet.")
	case t.Cluster.Deleting():
		return failedPrecondition(ReasonClusterDeleting, "The cluster is being deleted.")
	}
	return nil
}

func revocationInProgress() error {
	return apierror.New(apierror.FailedPrecondition, "The credentials of this class are being revoked.").WithReason(ReasonRevocationInProgress).WithRetryAfter(revocationRetry)
}

// GetBreakGlassCredential returns a credential.
func (s *Service) GetBreakGlassCredential(ctx context.Context, r *csv1.GetBreakGlassCredentialRequest) (*csv1.BreakGlassCredential, error) {
	return read(ctx, s, r.GetUid(), s.o.Store.Credential, ReasonCredentialUnknown, "break-glass credential")
}

// RevokeBreakGlassCredentials revokes all credentials of a class, once per UID.
func (s *Service) RevokeBreakGlassCredentials(ctx context.Context, r *csv1.RevokeBreakGlassCredentialsRequest) (*csv1.BreakGlassRevocation, error) {
	c := check{violations: validateOnce(r.GetUid(), r.GetClusterUid())}
	c.whoAndWhy("", r.GetClass(), r.GetRequester(), r.GetReason())
	c.elevation(r, intent.FromContext(ctx))
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	known, err := s.o.Store.Revocation(ctx, uid)
	switch {
	case err == nil:
		if err := sameRevocation(known, clusterUID, r); err != nil {
			return nil, s.answer(ctx, err)
		}
		return known.Proto(), nil
	case !errors.Is(err, store.ErrUnknown):
		return nil, s.answer(ctx, err)
	}
	var revocation *fleet.Revocation
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) (err error) {
		revocation, err = s.newRevocation(tx.Aggregates[clusterUID], uid, r)
		return err
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return revocation.Proto(), nil
}

func sameRevocation(known *fleet.Revocation, clusterUID string, r *csv1.RevokeBreakGlassCredentialsRequest) error {
	var c check
	c.immutable("cluster_uid", known.ClusterUID == clusterUID)
	c.immutable("class", known.Class == r.GetClass())
	c.immutable("elevation", known.Elevation == r.GetElevation())
	return apierror.InvalidFields(c.violations)
}

func (s *Service) newRevocation(t *fleet.ClusterAggregate, uid string, r *csv1.RevokeBreakGlassCredentialsRequest) (*fleet.Revocation, error) {
	now := s.o.Store.Now()
	if v := t.Revocation(uid); v != nil {
		return v, sameRevocation(v, v.ClusterUID, r)
	}
	if err := wantedCluster(t); err != nil && (t.Cluster == nil || r.GetElevation() == "") {
		return nil, err
	}
	v := &fleet.Revocation{UID: uid, ClusterUID: t.Cluster.UID, Class: r.GetClass(), Elevation: r.GetElevation(), Requester: r.GetRequester(), Reason: r.GetReason(), CreateTime: now,
		Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING}}
	switch {
	case v.Elevation != "":
		t.RevokeElevation(v)
	case t.Revoking(v.Class) != nil:
		return nil, revocationInProgress()
	default:
		t.Revocations = append(t.Revocations, v)
	}
	return v, s.settle(now, t)
}

// elevation validates the elevation of a revocation: it belongs to an SRE's credentials, and the engineer's intent names it.
func (c *check) elevation(r *csv1.RevokeBreakGlassCredentialsRequest, asked *intent.Intent) {
	switch {
	case r.GetElevation() == "":
	case r.GetClass() != csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:
		c.fail("elevation", "Forbidden: only credentials of class SRE have an elevation")
	case asked == nil || asked.Elevation.ID != r.GetElevation():
		c.fail("elevation", "Invalid value: must be the elevation in the signed intent")
	}
}

// GetBreakGlassRevocation returns a revocation.
func (s *Service) GetBreakGlassRevocation(ctx context.Context, r *csv1.GetBreakGlassRevocationRequest) (*csv1.BreakGlassRevocation, error) {
	return read(ctx, s, r.GetUid(), s.o.Store.Revocation, ReasonRevocationUnknown, "break-glass revocation")
}

func validateOnce(uid, clusterUID string) []apierror.Violation {
	var c check
	c.uuid("uid", uid)
	c.uuid("cluster_uid", clusterUID)
	return c.violations
}

// whoAndWhy validates the class, the requester and the reason.
func (c *check) whoAndWhy(prefix string, class csv1.BreakGlassClass, requester, reason string) {
	isSRE := class == csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	if !isSRE && class != csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER {
		c.fail(prefix+"class", "Required value")
	}
	if c.required(prefix+"requester", requester) && len(requester) > maxRequester {
		c.fail(prefix+"requester", "Too long: may not be longer than %d bytes", maxRequester)
	}
	if isSRE {
		c.required(prefix+"reason", reason)
	}
	if len(reason) > maxReason {
		c.fail(prefix+"reason", "Too long: may not be longer than %d bytes", maxReason)
	}
}

func validateCredentialSpec(spec *csv1.BreakGlassCredentialSpec) []apierror.Violation {
	var c check
	if spec == nil {
		c.fail("spec", "Required value")
		return c.violations
	}
	c.whoAndWhy("spec.", spec.GetClass(), spec.GetRequester(), spec.GetReason())
	if lifetime := spec.GetLifetime(); lifetime != nil && (lifetime.AsDuration() < minLifetime || lifetime.AsDuration() > fleet.DefaultLifetime) {
		c.fail("spec.lifetime", "Invalid value: %s: must be between %s and %s", lifetime.AsDuration(), minLifetime, fleet.DefaultLifetime)
	}
	if spec.GetClass() == csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE && (spec.GetLifetime() == nil || spec.GetLifetime().AsDuration() > maxEngineerLifetime) {
		c.fail("spec.lifetime", "Invalid value: for class SRE, must be between %s and %s", minLifetime, maxEngineerLifetime)
	}
	if spec.GetNotAfter() != nil {
		c.fail("spec.not_after", "Forbidden: Cluster Service sets it")
	}
	if spec.GetElevation() != "" {
		c.fail("spec.elevation", "Forbidden: Cluster Service sets it")
	}
	if spec.GetEmergency() {
		c.fail("spec.emergency", "Forbidden: Cluster Service sets it")
	}
	c.level("spec.level", spec)
	c.certificateRequest("spec.certificate_signing_request", spec)
	return c.violations
}

// level validates that an SRE's credential has a supported level, and a customer's none.
func (c *check) level(field string, spec *csv1.BreakGlassCredentialSpec) {
	unspecified := spec.GetLevel() == csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_UNSPECIFIED
	switch spec.GetClass() {
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER:
		if !unspecified {
			c.fail(field, "Forbidden: a customer's credential has no level")
		}
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:
		if unspecified {
			c.fail(field, "Required value")
		} else if fleet.Level(spec) == "" {
			c.fail(field, "Unsupported value: %s", spec.GetLevel())
		}
	}
}

// certificateRequest validates what the signer checks, so that the caller gets the error at once, and the organization,
// which the signer does not check.
func (c *check) certificateRequest(field string, spec *csv1.BreakGlassCredentialSpec) {
	text := spec.GetCertificateSigningRequest()
	if !c.required(field, text) {
		return
	}
	if len(text) > maxRequest {
		c.fail(field, "Too long: may not be longer than %d bytes", maxRequest)
		return
	}
	request, err := fleet.ParseRequest(text)
	if err != nil {
		c.fail(field, "Invalid value: %s", err)
		return
	}
	name := request.Subject.CommonName
	switch spec.GetClass() {
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER:
		if name != customerName {
			c.fail(field, "Invalid value: common name %q: must be %s", name, customerName)
		}
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:
		if len(name) <= len(srePrefix) || !strings.HasPrefix(name, srePrefix) {
			c.fail(field, "Invalid value: common name %q: must begin with %s", name, srePrefix)
		}
	}
	if organization := fleet.Level(spec).Organization(); organization != "" && !slices.Equal(request.Subject.Organization, []string{organization}) {
		c.fail(field, "Invalid value: organizations %q: must be exactly %s", request.Subject.Organization, organization)
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		c.fail(field, "Invalid value: must not have alternative names")
	}
	switch key := request.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSA {
			c.fail(field, "Invalid value: an RSA key must have at least %d bits", minRSA)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		c.fail(field, "Invalid value: the key must be RSA, ECDSA or Ed25519")
	}
}
