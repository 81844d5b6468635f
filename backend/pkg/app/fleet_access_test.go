package app_test

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The fleet's external authentications, credentials and revocations. A confidential client awaits its secret until
// fleet.secrets is set. A credential waits until its cluster is ready.

func (f *fleet) moveOthers(uid string) {
	if e := f.auths[uid]; e != nil {
		f.moveExternalAuth(e)
	}
	if c := f.creds[uid]; c != nil {
		f.moveCredential(c)
	}
	if r := f.revokes[uid]; r != nil {
		f.moveRevocation(r)
	}
}

func (f *fleet) moveExternalAuth(e *clusterservicev1.ExternalAuth) {
	s := e.Status
	confidential := slices.ContainsFunc(e.Spec.GetClients(), func(c *clusterservicev1.OidcClient) bool {
		return c.Type == clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL
	})
	next := clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY
	if confidential && !f.secrets {
		next = clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET
	}
	switch {
	case s.Phase == clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED:
		return
	case e.DeleteTime != nil:
		next = clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED
	case s.ObservedGeneration == e.Generation && s.Phase == next:
		return
	}
	s.Phase, s.ObservedGeneration = next, e.Generation
	e.Revision = f.next(e.Uid)
}

func (f *fleet) moveCredential(c *clusterservicev1.BreakGlassCredential) {
	s, cluster := c.Status, f.clusters[c.ClusterUid]
	if f.held || s.State != clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING || cluster.Status.Phase != clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY {
		return
	}
	s.State, s.Certificate, s.ApiUrl = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, "certificate", cluster.Status.ApiUrl
	s.ExpirationTime = timestamppb.New(time.Now().Add(24 * time.Hour))
	c.Revision = f.next(c.Uid)
}

// hold prevents credentials from being issued, or allows it.
func (f *fleet) hold(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	for uid := range f.creds {
		f.moving[uid] = true
	}
}

func (f *fleet) moveRevocation(r *clusterservicev1.BreakGlassRevocation) {
	switch s := r.Status; s.State {
	case clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING:
		s.State = clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING
	case clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:
		s.State, s.CompletionTime = clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED, timestamppb.Now()
		f.endCredentials(r.ClusterUid, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	default:
		return
	}
	r.Revision = f.next(r.Uid)
}

// endCredentials cancels the pending credentials of a cluster, and sets the issued ones to the given state.
func (f *fleet) endCredentials(cluster string, issued clusterservicev1.BreakGlassCredentialState) {
	for _, c := range f.creds {
		switch {
		case c.ClusterUid != cluster:
			continue
		case c.Status.State == clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:
			c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED
		case c.Status.State == clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED,
			c.Status.State == clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION:
			c.Status.State = issued
		default:
			continue
		}
		c.Revision = f.next(c.Uid)
	}
}

// deleteOthers deletes the children of a cluster.
func (f *fleet) deleteOthers(c *clusterservicev1.Cluster) {
	for _, e := range f.auths {
		if e.ClusterUid == c.Uid && e.Status.Phase != clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED {
			f.deleteWithCluster(e.Uid, e.DeleteTime)
			e.DeleteTime, e.Status.Phase = c.DeleteTime, clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED
			e.Revision = f.next(e.Uid)
		}
	}
	f.endCredentials(c.Uid, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	for _, r := range f.revokes {
		if r.ClusterUid == c.Uid && r.Status.CompletionTime == nil {
			r.Status.State, r.Status.CompletionTime = clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED, timestamppb.Now()
			r.Revision = f.next(r.Uid)
		}
	}
}

// othersAt returns the events of credentials and revocations that changed last at a revision.
func (f *fleet) othersAt(uid string, revision int64) []*clusterservicev1.WatchResponse {
	m := &clusterservicev1.WatchResponse{Revision: revision}
	if e := f.auths[uid]; e != nil && e.Revision == revision {
		m.Event = &clusterservicev1.WatchResponse_ExternalAuth{ExternalAuth: proto.Clone(e).(*clusterservicev1.ExternalAuth)}
	}
	if c := f.creds[uid]; c != nil && c.Revision == revision {
		m.Event = &clusterservicev1.WatchResponse_BreakGlassCredential{BreakGlassCredential: proto.Clone(c).(*clusterservicev1.BreakGlassCredential)}
	}
	if r := f.revokes[uid]; r != nil && r.Revision == revision {
		m.Event = &clusterservicev1.WatchResponse_BreakGlassRevocation{BreakGlassRevocation: proto.Clone(r).(*clusterservicev1.BreakGlassRevocation)}
	}
	if m.Event == nil {
		return nil
	}
	return []*clusterservicev1.WatchResponse{m}
}

// usable returns an error if the cluster does not exist or is being deleted.
func (f *fleet) usable(cluster string) error {
	c := f.clusters[cluster]
	switch {
	case f.refuse != nil:
		return f.refuse
	case c == nil:
		return refused(apierror.FailedPrecondition, "CLUSTER_UNKNOWN")
	case c.DeleteTime != nil:
		return refused(apierror.FailedPrecondition, "CLUSTER_DELETING")
	}
	return nil
}

// revoking returns an error if the class is being revoked.
func (f *fleet) revoking(cluster string, class clusterservicev1.BreakGlassClass) error {
	for _, running := range f.revokes {
		if running.ClusterUid == cluster && running.Class == class && running.Status.CompletionTime == nil {
			return refused(apierror.FailedPrecondition, "REVOCATION_IN_PROGRESS")
		}
	}
	return nil
}

func (f *fleet) ApplyExternalAuth(_ context.Context, r *clusterservicev1.ApplyExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[r.Uid]++
	e := f.auths[r.Uid]
	if e != nil && e.DeleteTime != nil {
		return nil, refused(apierror.FailedPrecondition, "UID_DELETED")
	}
	if err := f.usable(r.ClusterUid); err != nil {
		return nil, err
	}
	if e == nil {
		for _, other := range f.auths {
			if other.ClusterUid == r.ClusterUid && other.DeleteTime == nil {
				return nil, refused(apierror.FailedPrecondition, "EXTERNAL_AUTH_EXISTS")
			}
		}
		e = &clusterservicev1.ExternalAuth{Uid: r.Uid, ClusterUid: r.ClusterUid, ResourceId: r.ResourceId, Status: &clusterservicev1.ExternalAuthStatus{Phase: clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_PENDING}}
		f.auths[r.Uid] = e
	}
	if r.Generation > e.Generation {
		f.effects[r.Uid]++
		e.Generation, e.Spec, e.Revision = r.Generation, r.Spec, f.next(r.Uid)
	}
	return proto.Clone(e).(*clusterservicev1.ExternalAuth), nil
}

func (f *fleet) GetExternalAuth(_ context.Context, r *clusterservicev1.GetExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.auths[r.Uid]; e != nil {
		return proto.Clone(e).(*clusterservicev1.ExternalAuth), nil
	}
	return nil, refused(apierror.NotFound, "EXTERNAL_AUTH_UNKNOWN")
}

func (f *fleet) DeleteExternalAuth(_ context.Context, r *clusterservicev1.DeleteExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.calls[r.Uid]++
	e := f.auths[r.Uid]
	if e == nil {
		e = &clusterservicev1.ExternalAuth{Uid: r.Uid, ClusterUid: r.ClusterUid, ResourceId: r.ResourceId, Status: &clusterservicev1.ExternalAuthStatus{}}
		f.auths[r.Uid] = e
	}
	if e.DeleteTime == nil {
		f.effects[r.Uid]++
		e.DeleteTime, e.Status.Phase = timestamppb.Now(), clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING
		e.Revision = f.next(r.Uid)
	}
	return proto.Clone(e).(*clusterservicev1.ExternalAuth), nil
}

func (f *fleet) ApplyBreakGlassCredential(_ context.Context, r *clusterservicev1.ApplyBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[r.Uid]++
	c := f.creds[r.Uid]
	if c == nil {
		if err := f.usable(r.ClusterUid); err != nil {
			return nil, err
		}
		if err := f.revoking(r.ClusterUid, r.Spec.GetClass()); err != nil {
			return nil, err
		}
		c = &clusterservicev1.BreakGlassCredential{Uid: r.Uid, ClusterUid: r.ClusterUid, Spec: r.Spec, Status: &clusterservicev1.BreakGlassCredentialStatus{
			State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING,
		}}
		f.creds[r.Uid] = c
		f.effects[r.Uid]++
		c.Revision = f.next(r.Uid)
	}
	return proto.Clone(c).(*clusterservicev1.BreakGlassCredential), nil
}

func (f *fleet) GetBreakGlassCredential(_ context.Context, r *clusterservicev1.GetBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.creds[r.Uid]; c != nil {
		return proto.Clone(c).(*clusterservicev1.BreakGlassCredential), nil
	}
	return nil, refused(apierror.NotFound, "BREAK_GLASS_CREDENTIAL_UNKNOWN")
}

func (f *fleet) RevokeBreakGlassCredentials(_ context.Context, r *clusterservicev1.RevokeBreakGlassCredentialsRequest) (*clusterservicev1.BreakGlassRevocation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[r.Uid]++
	v := f.revokes[r.Uid]
	if v == nil {
		if err := f.usable(r.ClusterUid); err != nil {
			return nil, err
		}
		if err := f.revoking(r.ClusterUid, r.Class); err != nil {
			return nil, err
		}
		v = &clusterservicev1.BreakGlassRevocation{Uid: r.Uid, ClusterUid: r.ClusterUid, Class: r.Class, Requester: r.Requester, Status: &clusterservicev1.BreakGlassRevocationStatus{
			State: clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING,
		}}
		f.revokes[r.Uid] = v
		f.effects[r.Uid]++
		f.endCredentials(r.ClusterUid, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION)
		v.Revision = f.next(r.Uid)
	}
	return proto.Clone(v).(*clusterservicev1.BreakGlassRevocation), nil
}

func (f *fleet) GetBreakGlassRevocation(_ context.Context, r *clusterservicev1.GetBreakGlassRevocationRequest) (*clusterservicev1.BreakGlassRevocation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.revokes[r.Uid]; v != nil {
		return proto.Clone(v).(*clusterservicev1.BreakGlassRevocation), nil
	}
	return nil, refused(apierror.NotFound, "BREAK_GLASS_REVOCATION_UNKNOWN")
}

func (f *fleet) ListExternalAuths(context.Context, *clusterservicev1.ListExternalAuthsRequest) (*clusterservicev1.ListExternalAuthsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &clusterservicev1.ListExternalAuthsResponse{Revision: f.revision}
	for _, e := range f.auths {
		response.ExternalAuths = append(response.ExternalAuths, proto.Clone(e).(*clusterservicev1.ExternalAuth))
	}
	return response, nil
}

func (f *fleet) ListBreakGlassCredentials(context.Context, *clusterservicev1.ListBreakGlassCredentialsRequest) (*clusterservicev1.ListBreakGlassCredentialsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &clusterservicev1.ListBreakGlassCredentialsResponse{Revision: f.revision}
	for _, c := range f.creds {
		response.Credentials = append(response.Credentials, proto.Clone(c).(*clusterservicev1.BreakGlassCredential))
	}
	return response, nil
}

func (f *fleet) ListBreakGlassRevocations(context.Context, *clusterservicev1.ListBreakGlassRevocationsRequest) (*clusterservicev1.ListBreakGlassRevocationsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &clusterservicev1.ListBreakGlassRevocationsResponse{Revision: f.revision}
	for _, v := range f.revokes {
		response.Revocations = append(response.Revocations, proto.Clone(v).(*clusterservicev1.BreakGlassRevocation))
	}
	return response, nil
}
