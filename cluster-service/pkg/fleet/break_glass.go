package fleet

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render/armproperty"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// Credential is the row of a break-glass credential. A credential is requested once and has no generations.
type Credential struct {
	UID        string
	ClusterUID string
	Spec       *csv1.BreakGlassCredentialSpec
	Status     *csv1.BreakGlassCredentialStatus
	Revision   int64
	CreateTime time.Time
	// GoneTime is when the credential had ended and its work was deleted. From then on the row is a record.
	GoneTime time.Time
}

// Proto returns the credential as a message of the API.
func (c *Credential) Proto() *csv1.BreakGlassCredential {
	return &csv1.BreakGlassCredential{Uid: c.UID, ClusterUid: c.ClusterUID, Spec: c.Spec, Status: c.Status, Revision: c.Revision,
		CreateTime: timestamp(c.CreateTime)}
}

// State returns the state of the credential.
func (c *Credential) State() csv1.BreakGlassCredentialState { return c.Status.GetState() }

// Pending reports whether the credential waits for its signature.
func (c *Credential) Pending() bool {
	return c.State() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING
}

// Gone reports whether only the record is left.
func (c *Credential) Gone() bool { return !c.GoneTime.IsZero() }

// ExpireTime returns when the credential ends because of time: when an issued certificate expires, and until when a certificate that
// must end with an elevation can be signed. For a credential that was revoked alone and has ended, it is the end of the elevation,
// until which the revocation prevents further credentials. It is zero if the credential does not end by itself.
func (c *Credential) ExpireTime() time.Time {
	switch {
	case c.State() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
		return c.Status.GetExpirationTime().AsTime()
	case c.Pending() && c.Spec.GetNotAfter() != nil:
		return c.Spec.GetNotAfter().AsTime().Add(-c.Spec.GetLifetime().AsDuration())
	case c.Status.GetRevocation() == nil:
	case c.State() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION:
		return c.Status.GetExpirationTime().AsTime()
	default:
		return c.Spec.GetNotAfter().AsTime()
	}
	return time.Time{}
}

func (c *Credential) ended() bool {
	switch c.State() {
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED,
		csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED:
		return true
	}
	return false
}

// Revocation is the row of a revocation of a class of credentials, or of those of one elevation.
type Revocation struct {
	UID        string
	ClusterUID string
	Class      csv1.BreakGlassClass
	// Elevation is empty for the revocation of the whole class.
	Elevation  string
	Requester  string
	Reason     string
	Status     *csv1.BreakGlassRevocationStatus
	Revision   int64
	CreateTime time.Time
	GoneTime   time.Time
}

// Proto returns the revocation as a message of the API.
func (v *Revocation) Proto() *csv1.BreakGlassRevocation {
	return &csv1.BreakGlassRevocation{Uid: v.UID, ClusterUid: v.ClusterUID, Class: v.Class, Requester: v.Requester, Reason: v.Reason,
		Status: v.Status, Revision: v.Revision, CreateTime: timestamp(v.CreateTime), Elevation: v.Elevation}
}

// Active reports whether the revocation has not ended. New credentials of its class are refused until then.
func (v *Revocation) Active() bool {
	switch v.Status.GetState() {
	case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:
		return true
	}
	return false
}

// Gone reports whether only the record is left.
func (v *Revocation) Gone() bool { return !v.GoneTime.IsZero() }

// SignerClass returns HyperShift's name of a class. It returns an error for a class that this release does not support.
func SignerClass(class csv1.BreakGlassClass) (string, error) {
	switch class {
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER:
		return "customer-break-glass", nil
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE:
		return "sre-break-glass", nil
	case csv1.BreakGlassClass_BREAK_GLASS_CLASS_UNSPECIFIED:
	}
	return "", unsupportedClass(class)
}

func unsupportedClass(class csv1.BreakGlassClass) error {
	return fmt.Errorf("unsupported value %s: supported values are %s, %s", class, csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE)
}

// Credential returns the credential with a UID, or nil if it is unknown or ended long ago.
func (t *ClusterAggregate) Credential(uid string) *Credential {
	i := slices.IndexFunc(t.Credentials, func(c *Credential) bool { return c.UID == uid })
	if i < 0 {
		return nil
	}
	return t.Credentials[i]
}

// Revocation returns the revocation with a UID, or nil if it is unknown or ended long ago.
func (t *ClusterAggregate) Revocation(uid string) *Revocation {
	i := slices.IndexFunc(t.Revocations, func(v *Revocation) bool { return v.UID == uid })
	if i < 0 {
		return nil
	}
	return t.Revocations[i]
}

// Revoking returns the active revocation of a class, or nil.
func (t *ClusterAggregate) Revoking(class csv1.BreakGlassClass) *Revocation {
	i := slices.IndexFunc(t.Revocations, func(v *Revocation) bool { return v.Class == class && v.Active() })
	if i < 0 {
		return nil
	}
	return t.Revocations[i]
}

// revokingClass reports whether all credentials of a class are being revoked.
func (t *ClusterAggregate) revokingClass(class csv1.BreakGlassClass) bool {
	return slices.ContainsFunc(t.Revocations, func(v *Revocation) bool { return v.Class == class && v.Active() && v.Elevation == "" })
}

// advanceBreakGlass advances the states of credentials and revocations. Unless the HostedCluster can be rendered, no revocation ends that
// requests a restart of the control plane.
func advanceBreakGlass(now time.Time, t *ClusterAggregate, canRender bool) {
	noteUses(t)
	for _, v := range t.Revocations {
		if v.Active() {
			advanceRevocation(now, t, v, canRender)
		}
	}
	for _, c := range t.Credentials {
		if !c.ended() {
			advanceCredential(now, t, c)
		}
	}
}

func advanceRevocation(now time.Time, t *ClusterAggregate, v *Revocation, canRender bool) {
	s, work := v.Status, t.Work(RevocationWork, v.UID)
	end := func(state csv1.BreakGlassRevocationState) { s.State, s.CompletionTime = state, timestamp(now) }
	// succeed ends the revocation, with a restart of the control plane or without. One with a restart waits until the HostedCluster can be rendered.
	succeed := func(restart bool) (ended bool) {
		if restart && !canRender {
			s.State = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING
			return false
		}
		if restart {
			t.Cluster.Status.ControlPlaneRestartTime = timestamp(now)
		}
		end(csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED)
		return true
	}
	switch {
	case t.Cluster == nil || t.Cluster.Deleting():
		end(csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED)
	case work == nil && v.Elevation != "" && !t.accepts(now, v.Elevation):
		succeed(t.revokedBefore(v))
	case work == nil:
		s.State = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING
	case work.permanentlyRefused(), work.Observed.Condition(feedback.SignerClassValid).Status == "False":
		end(csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED)
	case work.Observed.Condition(feedback.PreviousCertificatesRevoked).Status == "True":
		if succeed(t.takesAway(v.Class)) {
			for _, c := range t.Credentials {
				if c.Spec.GetClass() == v.Class && c.State() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION {
					c.Status.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
				}
			}
		}
	default:
		s.State = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING
	}
	if work != nil {
		conditions := []condition{appliedCondition(work, armproperty.Service)}
		for _, name := range feedback.RevocationConditions {
			conditions = append(conditions, observedCondition(name, &work.Observed))
		}
		s.Conditions = setConditions(s.Conditions, now, 0, conditions...)
	}
}

func advanceCredential(now time.Time, t *ClusterAggregate, c *Credential) {
	s := c.Status
	clusterGone := t.Cluster == nil || t.Cluster.Gone()
	clusterGoes := clusterGone || t.Cluster.Deleting()
	revoking := t.Revoking(c.Spec.GetClass()) != nil
	switch c.State() {
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:
		if clusterGoes || t.revokingClass(c.Spec.GetClass()) || s.GetRevocation() != nil {
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED
			return
		}
		advancePending(now, t, c)
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
		switch {
		case !now.Before(s.GetExpirationTime().AsTime()):
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED
		case clusterGone:
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
		case revoking, s.GetRevocation() != nil:
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION
		}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION:
		switch {
		case clusterGone:
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
		case s.GetRevocation() != nil:
			// The API server rejects an expired certificate; no other proof is needed.
			if !now.Before(s.GetExpirationTime().AsTime()) {
				s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
			}
		case !revoking && !clusterGoes:
			// The revocation failed.
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		}
	}
}

// advancePending applies the result of the control plane to a pending credential. What the control plane signs during a revocation does not count.
func advancePending(now time.Time, t *ClusterAggregate, c *Credential) {
	s, work := c.Status, t.Work(CredentialWork, c.UID)
	if t.Revoking(c.Spec.GetClass()) != nil {
		work = nil
	}
	late := condition{"Issued", "False", "OutlivesElevation",
		"The control plane did not sign the certificate early enough: it would be valid after the end of the elevation. Request another credential."}
	deadline := c.ExpireTime()
	tooLate := !deadline.IsZero() && !now.Before(deadline)
	if work == nil {
		if tooLate {
			s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED
			s.Conditions = setConditions(s.Conditions, now, 0, late)
		}
		return
	}
	seen := &work.Observed
	issued := condition{"Issued", "False", "Pending", "Waiting for the control plane to sign the certificate."}
	fail := func(reason, message string) {
		s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED
		issued = condition{"Issued", "False", reason, message}
	}
	failed, denied := seen.Condition(feedback.CertificateFailed), seen.Condition(feedback.CertificateDenied)
	switch {
	case work.permanentlyRefused():
		fail("Refused", work.refusalText())
	case failed.Status == "True":
		fail(failed.Reason, failed.Message)
	case denied.Status == "True":
		fail(denied.Reason, denied.Message)
	case seen.Certificate != "" && seen.ServingCA != "" && t.Cluster.Status.GetApiUrl() != "":
		notAfter, err := checkCertificate(now, t.Cluster, c, seen.Certificate)
		if err != nil {
			fail("WrongCertificate", err.Error())
			break
		}
		if limit := c.Spec.GetNotAfter(); limit != nil && notAfter.After(limit.AsTime()) {
			fail(late.reason, late.message)
			break
		}
		s.State = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		s.Certificate, s.ServingCertificateAuthority, s.ApiUrl = seen.Certificate, seen.ServingCA, t.Cluster.Status.GetApiUrl()
		s.ExpirationTime, s.CertificateFingerprint = timestamp(notAfter), Fingerprint(seen.Certificate)
		issued = condition{"Issued", "True", "Signed", "The control plane signed the certificate."}
	case tooLate:
		fail(late.reason, late.message)
	case seen.Certificate != "":
		issued.message = "Waiting for the API server's serving certificate authority and URL."
	}
	s.Conditions = setConditions(s.Conditions, now, 0, appliedCondition(work, armproperty.Service), issued)
}

// ParseRequest parses a certificate signing request: exactly one PEM block with a valid signature.
func ParseRequest(text string) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("must be one PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("must be a PKCS #10 certificate signing request")
	}
	if err := request.CheckSignature(); err != nil {
		return nil, errors.New("must be signed with its own key")
	}
	return request, nil
}

// planBreakGlass adds the desired works. Their content never changes, so they are not rendered. A revocation starts after
// the works of all pending credentials of its class are gone: the new signer could sign canceled ones. Pending credentials of
// other elevations get another work after the revocation. All wait until the control plane was available once.
func planBreakGlass(now time.Time, t *ClusterAggregate) {
	if t.Cluster == nil || t.Cluster.Deleting() || t.Cluster.Shard == "" || t.Cluster.Status.GetObservedGeneration() == 0 {
		return
	}
	for _, v := range t.Revocations {
		if v.Active() && t.Work(RevocationWork, v.UID) == nil {
			advanceRevocation(now, t, v, false) // the end of an earlier one may have been enough
		}
	}
	for _, c := range t.Credentials {
		if c.Pending() && t.Work(CredentialWork, c.UID) == nil && t.Revoking(c.Spec.GetClass()) == nil {
			w := newImmutableWork(t, CredentialWork, c.UID, c.UID)
			if v := t.revokedSince(c); v != nil {
				// With an ID of its own, late reports of an earlier work do not count.
				w.ID = WorkID(w.Shard, w.Name, c.UID+"-"+v.UID)
			}
			t.Works = append(t.Works, w)
			advancePending(now, t, c)
		}
	}
	for _, v := range t.Revocations {
		if v.Active() && t.Work(RevocationWork, v.UID) == nil && !t.requested(v.Class) && t.replacing(v.Class) == nil {
			t.Works = append(t.Works, newImmutableWork(t, RevocationWork, v.UID, v.UID))
			advanceRevocation(now, t, v, false)
		}
	}
}

// revokedSince returns the latest revocation of the class of a credential that was requested after it, or nil.
func (t *ClusterAggregate) revokedSince(c *Credential) (latest *Revocation) {
	for _, v := range t.Revocations {
		if v.Class == c.Spec.GetClass() && !v.CreateTime.Before(c.CreateTime) && (latest == nil || latest.CreateTime.Before(v.CreateTime)) {
			latest = v
		}
	}
	return latest
}

// immutable is the digest of content that never changes.
const immutable = "immutable"

// newImmutableWork returns a work whose content is desired now and never changes.
func newImmutableWork(t *ClusterAggregate, kind WorkKind, owner, name string) *Work {
	w := newWork(t, kind, owner, name)
	w.Desired, w.Digest = 1, immutable
	return w
}

// requested reports whether a request of a class is, or may still be, on the management cluster.
func (t *ClusterAggregate) requested(class csv1.BreakGlassClass) bool {
	return slices.ContainsFunc(t.Works, func(w *Work) bool {
		if w.Kind != CredentialWork {
			return false
		}
		c := t.Credential(w.OwnerUID)
		return c == nil || c.Spec.GetClass() == class
	})
}

// reportBreakGlass updates the progress, and completes credentials and revocations that have ended and have no work.
func reportBreakGlass(now time.Time, t *ClusterAggregate) {
	for _, c := range t.Credentials {
		if c.Gone() {
			continue
		}
		work := t.Work(CredentialWork, c.UID)
		c.Status.Progress = setProgress(c.Status.Progress, now, credentialLayers(t, c, work)...)
		if c.ended() && work == nil {
			c.GoneTime = now
		}
	}
	for _, v := range t.Revocations {
		if v.Gone() {
			continue
		}
		work := t.Work(RevocationWork, v.UID)
		v.Status.Progress = setProgress(v.Status.Progress, now, revocationLayers(t, v, work)...)
		if !v.Active() && work == nil {
			v.GoneTime = now
		}
	}
}

func credentialLayers(t *ClusterAggregate, c *Credential, work *Work) []layer {
	switch c.State() {
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:
		if v := t.Revoking(c.Spec.GetClass()); v != nil {
			return []layer{{LayerControlPlane, clusterstatus.StateAwaitingRevocation, "Waiting for the end of the revocation " + v.UID + " of another elevation, which replaces the signer."}}
		}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
		return []layer{{LayerControlPlane, "Issued", "The control plane signed the certificate."}}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION:
		if t.Revoking(c.Spec.GetClass()) == nil {
			return []layer{{LayerControlPlane, "AwaitingExpiration", "The credential was revoked alone. Waiting for its certificate to expire."}}
		}
		return []layer{{LayerControlPlane, clusterstatus.StateAwaitingRevocation, "Waiting for the revocation of all credentials of its class."}}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED:
		return []layer{{LayerControlPlane, "Failed", "The control plane refused to sign the certificate; see the conditions."}}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
		return []layer{{LayerControlPlane, "Canceled", "Canceled before the certificate was signed."}}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:
		return []layer{{LayerControlPlane, "Revoked", "The API server no longer accepts the certificate."}}
	case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED:
		return []layer{{LayerControlPlane, "Expired", "The certificate has expired."}}
	}
	if work == nil {
		return []layer{{LayerControlPlane, clusterstatus.StateWaitingForControlPlane, "Waiting for the control plane to become available for the first time."}}
	}
	return []layer{maestroLayer(work), managementClusterLayer(work), {LayerControlPlane, clusterstatus.StateSigning, "Waiting for the control plane to sign the certificate."}}
}

func revocationLayers(t *ClusterAggregate, v *Revocation, work *Work) []layer {
	switch v.Status.GetState() {
	case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED:
		if v.Elevation != "" {
			return []layer{{LayerControlPlane, "Revoked", "The API server accepts no certificate of the elevation."}}
		}
		return []layer{{LayerControlPlane, "Revoked", "The API server refuses the previous signer."}}
	case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED:
		return []layer{{LayerControlPlane, "Canceled", "The cluster is being deleted."}}
	case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED:
		return []layer{{LayerControlPlane, "Failed", "The control plane refuses the revocation; see the conditions."}}
	}
	switch replacing := t.replacing(v.Class); {
	case work == nil && replacing != nil:
		return []layer{{LayerControlPlane, clusterstatus.StateAwaitingRevocation, "Waiting for the end of the revocation " + replacing.UID + " of the class."}}
	case work == nil && t.requested(v.Class):
		return []layer{{LayerManagementCluster, clusterstatus.StateRemovingRequests, "Waiting for the certificate requests of pending and canceled credentials to be deleted."}}
	case work == nil:
		return []layer{{LayerControlPlane, clusterstatus.StateWaitingForControlPlane, "Waiting for the control plane to become available for the first time."}}
	}
	step := layer{LayerControlPlane, clusterstatus.StateWaiting, "Waiting for the control plane to start the revocation."}
	if work.Observed.Condition(feedback.PreviousCertificatesRevoked).Status == "True" {
		step = layer{LayerControlPlane, clusterstatus.StateAwaitingRestart, "The API server refuses the previous signer. Waiting until Cluster Service can render the HostedCluster, to request a restart that ends the requests in progress."}
	}
	for _, name := range feedback.RevocationConditions {
		c := work.Observed.Condition(name)
		if c.Status == "True" {
			continue
		}
		if c.Status != "" {
			step = layer{LayerControlPlane, "Awaiting" + name, c.Message}
		}
		break
	}
	return []layer{maestroLayer(work), managementClusterLayer(work), step}
}
