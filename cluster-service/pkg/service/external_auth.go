package service

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ApplyExternalAuth creates an external authentication or stores a newer generation of it.
func (s *Service) ApplyExternalAuth(ctx context.Context, r *csv1.ApplyExternalAuthRequest) (*csv1.ExternalAuth, error) {
	violations := validateChild(r.GetUid(), r.GetResourceId(), r.GetClusterUid(), r.GetGeneration())
	violations = append(violations, validateExternalAuthSpec(r.GetSpec())...)
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	// If it is known under another cluster, it belongs to an aggregate that this request does not lock.
	known, err := s.o.Store.ExternalAuth(ctx, uid)
	switch {
	case err == nil && known.ClusterUID != clusterUID:
		err = apierror.InvalidFields([]apierror.Violation{{Field: "cluster_uid", Message: "Forbidden: field is immutable"}})
	case errors.Is(err, store.ErrUnknown):
		err = nil
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	var auth *fleet.ExternalAuth
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) (err error) {
		auth, err = s.changeExternalAuth(ctx, tx.Aggregates[clusterUID], uid, clusterUID, r)
		return err
	})
	switch {
	case store.IsResourceIDInUse(err):
		err = failedPrecondition(ReasonResourceIDInUse, "Another external authentication uses the resource ID and is not fully deleted.")
	case store.IsExternalAuthInUse(err):
		err = externalAuthExists()
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return auth.Proto(), nil
}

func externalAuthExists() error {
	return failedPrecondition(ReasonExternalAuthExists, "The cluster has another external authentication that is not being deleted.")
}

func (s *Service) changeExternalAuth(ctx context.Context, t *fleet.ClusterAggregate, uid, clusterUID string, r *csv1.ApplyExternalAuthRequest) (*fleet.ExternalAuth, error) {
	now, a := s.o.Store.Now(), t.ExternalAuthByUID(uid)
	switch {
	case a != nil && a.Deleting():
		return nil, failedPrecondition(ReasonUIDDeleted, "The external authentication is being deleted or is deleted.")
	case a != nil && r.GetGeneration() <= a.Generation:
		return a, nil
	case t.Cluster == nil:
		return nil, failedPrecondition(ReasonClusterUnknown, "The cluster of the external authentication does not exist in Cluster Service yet.")
	case t.Cluster.Deleting():
		return nil, failedPrecondition(ReasonClusterDeleting, "The cluster of the external authentication is being deleted.")
	case a == nil && t.ExternalAuth() != nil:
		return nil, externalAuthExists()
	}
	if a == nil {
		a = &fleet.ExternalAuth{UID: uid, ClusterUID: clusterUID, ResourceID: r.GetResourceId(), CreateTime: now, Status: &csv1.ExternalAuthStatus{}}
		t.ExternalAuths = append(t.ExternalAuths, a)
	} else {
		var c check
		c.immutable("resource_id", strings.EqualFold(a.ResourceID, r.GetResourceId()))
		c.immutable("spec.name", strings.EqualFold(a.Spec.GetName(), r.GetSpec().GetName()))
		if err := apierror.InvalidFields(c.violations); err != nil {
			return nil, err
		}
	}
	if err := validateStep(a.Generation, r.GetGeneration()); err != nil {
		return nil, err
	}
	a.BeginUpdate(t)
	a.Generation, a.Spec = r.GetGeneration(), r.GetSpec()
	s.o.Log.InfoContext(ctx, "stored the desired state of an external authentication", logkey.ExternalAuthUID, uid, logkey.ClusterUID, clusterUID, logkey.ResourceID, a.ResourceID,
		logkey.Generation, a.Generation)
	return a, s.settle(now, t)
}

// GetExternalAuth returns an external authentication.
func (s *Service) GetExternalAuth(ctx context.Context, r *csv1.GetExternalAuthRequest) (*csv1.ExternalAuth, error) {
	return read(ctx, s, r.GetUid(), s.o.Store.ExternalAuth, ReasonExternalAuthUnknown, "external auth")
}

// DeleteExternalAuth requests the deletion of an external authentication.
func (s *Service) DeleteExternalAuth(ctx context.Context, r *csv1.DeleteExternalAuthRequest) (*csv1.ExternalAuth, error) {
	if err := validDeletion(r.GetUid(), r.GetResourceId()); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	// A known external authentication determines its cluster itself.
	known, err := s.o.Store.ExternalAuth(ctx, uid)
	switch {
	case err == nil:
		clusterUID = known.ClusterUID
	case errors.Is(err, store.ErrUnknown):
		err = validUID("cluster_uid", clusterUID)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	var auth *fleet.ExternalAuth
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[clusterUID], s.o.Store.Now()
		auth = t.ExternalAuthByUID(uid)
		if auth == nil {
			auth = &fleet.ExternalAuth{UID: uid, ClusterUID: clusterUID, ResourceID: r.GetResourceId(), Spec: &csv1.ExternalAuthSpec{}, CreateTime: now,
				DeleteTime: now, GoneTime: now, Status: &csv1.ExternalAuthStatus{Phase: csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED}}
			t.ExternalAuths = append(t.ExternalAuths, auth)
		}
		if auth.Deleting() {
			return nil
		}
		s.o.Log.InfoContext(ctx, "started the deletion of an external authentication", logkey.ExternalAuthUID, uid, logkey.ClusterUID, clusterUID, logkey.ResourceID, auth.ResourceID)
		auth.DeleteTime = now
		return s.settle(now, t)
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return auth.Proto(), nil
}

const (
	maxAudiences   = 10
	maxOIDCClients = 20
	// maxClaim counts characters, as HyperShift's definition does.
	maxClaim = 256
	maxCA    = 256 << 10
)

func validateExternalAuthSpec(spec *csv1.ExternalAuthSpec) []apierror.Violation {
	var c check
	if spec == nil {
		c.fail("spec", "Required value")
		return c.violations
	}
	c.matches("spec.name", spec.GetName(), nodePoolName)
	c.httpsURL("spec.issuer.url", spec.GetIssuer().GetUrl())
	audiences := map[string]bool{}
	if n := len(spec.GetIssuer().GetAudiences()); n < 1 || n > maxAudiences {
		c.fail("spec.issuer.audiences", "Invalid value: must have between 1 and %d items", maxAudiences)
	}
	for i, audience := range spec.GetIssuer().GetAudiences() {
		field := fmt.Sprintf("spec.issuer.audiences[%d]", i)
		if c.required(field, audience) && audiences[audience] {
			c.fail(field, "Duplicate value: %q", audience)
		}
		audiences[audience] = true
	}
	c.certificates("spec.issuer.certificate_authority", spec.GetIssuer().GetCertificateAuthority())
	c.oidcClients(spec, audiences)
	c.claimMappings(spec.GetClaimMappings())
	for i, claim := range spec.GetRequiredClaims() {
		c.required(fmt.Sprintf("spec.required_claims[%d].claim", i), claim.GetClaim())
		c.required(fmt.Sprintf("spec.required_claims[%d].required_value", i), claim.GetRequiredValue())
	}
	return c.violations
}

func (c *check) httpsURL(field, value string) {
	if !c.required(field, value) {
		return
	}
	parsed, err := url.Parse(value)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		c.fail(field, "Invalid value: %q: must be an https URL without user, query and fragment", value)
	}
}

func (c *check) certificates(field, value string) {
	if value == "" {
		return
	}
	if len(value) > maxCA {
		c.fail(field, "Too long: may not be longer than %d bytes", maxCA)
		return
	}
	rest, found := []byte(value), 0
	for block := (*pem.Block)(nil); ; found++ {
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			c.fail(field, "Invalid value: must contain only certificates, and has a block of type %q", block.Type)
			return
		}
	}
	if found == 0 || strings.TrimSpace(string(rest)) != "" {
		c.fail(field, "Invalid value: must be certificates in PEM")
	}
}

func (c *check) oidcClients(spec *csv1.ExternalAuthSpec, audiences map[string]bool) {
	if len(spec.GetClients()) > maxOIDCClients {
		c.fail("spec.clients", "Too many: must have at most %d items", maxOIDCClients)
	}
	seen := map[string]bool{}
	for i, client := range spec.GetClients() {
		field := fmt.Sprintf("spec.clients[%d]", i)
		c.within(field+".component_name", int32(len(client.GetComponentName())), 1, 256)
		c.within(field+".component_namespace", int32(len(client.GetComponentNamespace())), 1, 63)
		if key := client.GetComponentNamespace() + "/" + client.GetComponentName(); seen[key] {
			c.fail(field, "Duplicate value: %q", key)
		} else {
			seen[key] = true
		}
		if c.required(field+".client_id", client.GetClientId()) && !audiences[client.GetClientId()] {
			c.fail(field+".client_id", "Invalid value: %q: must be one of the issuer's audiences", client.GetClientId())
		}
		switch client.GetType() {
		case csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC:
		case csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL:
			for _, problem := range validation.IsDNS1123Subdomain(fleet.ClientSecretName(spec, client)) {
				c.fail(field+".component_name", "Invalid value: %q: cannot name a secret: %s", client.GetComponentName(), problem)
			}
		default:
			c.fail(field+".type", "Required value")
		}
	}
}

func (c *check) claimMappings(m *csv1.ClaimMappings) {
	const field = "spec.claim_mappings."
	username := m.GetUsername()
	c.within(field+"username.claim", characters(username.GetClaim()), 1, maxClaim)
	isPrefix := username.GetPrefixPolicy() == csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX
	switch {
	case isPrefix && username.GetPrefix() == "":
		c.fail(field+"username.prefix", "Required value: when the policy is PREFIX")
	case !isPrefix && username.GetPrefix() != "":
		c.fail(field+"username.prefix", "Forbidden: unless the policy is PREFIX")
	}
	if groups := m.GetGroups(); groups != nil {
		c.within(field+"groups.claim", characters(groups.GetClaim()), 1, maxClaim)
	}
}

func characters(text string) int32 { return int32(utf8.RuneCountInString(text)) }
