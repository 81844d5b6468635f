package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// signingTime is the part of an elevation that is left for signing a credential.
const signingTime = time.Minute

// minCredential and maxCredential are the limits of Cluster Service for the certificate of an SRE.
const minCredential, maxCredential = 10 * time.Minute, 15 * time.Minute

// maxPause is the limit of Cluster Service.
const maxPause = 7 * 24 * time.Hour

// clusterInPath returns the cluster that the path names, which becomes the object of the audit record.
func (s *Server) clusterInPath(ctx context.Context, rq *request) (database.AdminTarget, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return database.AdminTarget{}, err
	}
	target := database.AdminTarget{Kind: "cluster", ID: cluster.UID, ResourceID: cluster.ResourceID, ClusterUID: cluster.UID}
	rq.audited.object = objectOf(target)
	return target, nil
}

func (s *Server) pauseCluster(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.PauseRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	duration, err := time.ParseDuration(asked.Duration)
	if err != nil || duration < time.Minute || duration > maxPause {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "duration", Message: "Invalid value: must be a duration from 1m to 168h, for example 2h"}})
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	until := time.Now().UTC().Add(duration).Truncate(time.Second)
	return s.accept(ctx, rq, target, adminv1.Message[*clusterservicev1.PauseClusterRequest]{
		Of: &clusterservicev1.PauseClusterRequest{ClusterUid: target.ClusterUID, Until: timestamppb.New(until)},
	})
}

func (s *Server) setClusterSize(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.SetSizeRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, adminv1.Message[*clusterservicev1.SetClusterSizeRequest]{
		Of: &clusterservicev1.SetClusterSizeRequest{ClusterUid: target.ClusterUID, Size: asked.Size},
	})
}

func (s *Server) scaleNodePool(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.ScaleRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	if err := validateScale(asked); err != nil {
		return nil, err
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	pool, err := s.nodePool(ctx, target, rq.http.PathValue("pool"))
	if err != nil {
		return nil, err
	}
	if pool.ARM == nil {
		return nil, apierror.New(apierror.Conflict, "The node pool does not exist in ARM: it is deleted or being deleted.")
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "nodePool", ID: pool.ARM.UID, ResourceID: pool.ARM.Resource.ID, ClusterUID: target.ClusterUID}, asked)
}

// maxReplicas is the limit of the ARM API.
const maxReplicas = 200

func validateScale(asked adminv1.ScaleRequest) error {
	wrong := func(field, message string) error {
		return apierror.InvalidFields([]apierror.Violation{{Field: field, Message: message}})
	}
	switch {
	case (asked.Replicas == nil) == (asked.AutoScaling == nil):
		return wrong("replicas", "Invalid value: exactly one of replicas and autoScaling is required")
	case asked.Replicas != nil && (*asked.Replicas < 0 || *asked.Replicas > maxReplicas):
		return wrong("replicas", "Invalid value: must be 0 to 200")
	case asked.AutoScaling != nil && (asked.AutoScaling.Min < 0 || asked.AutoScaling.Min > asked.AutoScaling.Max || asked.AutoScaling.Max > maxReplicas):
		return wrong("autoScaling", "Invalid value: must be 0 <= min <= max <= 200")
	}
	return nil
}

func (s *Server) requestCredential(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.CredentialRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	if err := s.completeCredential(ctx, rq, &asked); err != nil {
		return nil, err
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	operation, err := s.newOperation(rq, target, asked)
	if err != nil {
		return nil, err
	}
	return s.acceptCredential(ctx, rq, target, operation)
}

// completeCredential validates a request for a credential and sets what it leaves out. It replaces the elevation of the request if the level
// requires another one.
func (s *Server) completeCredential(ctx context.Context, rq *request, asked *adminv1.CredentialRequest) error {
	asked.Level = cmp.Or(asked.Level, adminv1.LevelReader)
	if asked.Level.Role() == "" {
		return apierror.InvalidFields([]apierror.Violation{{Field: "level", Message: fmt.Sprintf("Unsupported value: %q: supported values: %q", asked.Level, adminv1.Levels())}})
	}
	if err := s.requireLevel(ctx, rq, asked.Level); err != nil {
		return err
	}
	if asked.CertificateSigningRequest == "" {
		return apierror.InvalidFields([]apierror.Violation{{Field: "certificateSigningRequest", Message: "Required value"}})
	}
	var err error
	asked.Duration, err = validity(rq, asked.Duration)
	return err
}

// requireLevel replaces the elevation of the request if a level requires another one than the route, and notes the level for the audit.
func (s *Server) requireLevel(ctx context.Context, rq *request, level adminv1.Level) error {
	rq.audited.level = string(level)
	class := level.Class()
	if class == adminv1.ClassOf(rq.route.Name) {
		return nil
	}
	permitting, err := s.elevationFor(ctx, rq, class)
	if err == nil {
		rq.elevation = permitting
	}
	return err
}

// validity returns the duration of a credential, which must end before the elevation. Without a request it is the longest one that does.
func validity(rq *request, asked string) (string, error) {
	if asked == "" {
		left := time.Until(rq.elevation.ExpirationTime.Add(-signingTime)).Truncate(time.Second) - time.Second
		asked = max(minCredential, min(maxCredential, left)).String()
	}
	d, err := time.ParseDuration(asked)
	switch end := rq.elevation.ExpirationTime; {
	case err != nil || d < minCredential || d > maxCredential:
		return "", apierror.InvalidFields([]apierror.Violation{{Field: "duration", Message: fmt.Sprintf("Invalid value: must be a duration from %s to %s", minCredential, maxCredential)}})
	case time.Now().Add(d + signingTime).After(end):
		return "", apierror.InvalidFields([]apierror.Violation{{Field: "duration", Message: fmt.Sprintf("Invalid value: %s: the credential must end before your elevation, which ends at %s; %s are left for issuing it. Elevate for longer.",
			d, end.UTC().Format(time.RFC3339), signingTime)}})
	}
	return asked, nil
}

// revokeCredential accepts the revocation of the credential in the path.
func (s *Server) revokeCredential(ctx context.Context, rq *request) (any, error) {
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	c, err := s.Fleet.GetBreakGlassCredential(ctx, &clusterservicev1.GetBreakGlassCredentialRequest{Uid: rq.http.PathValue("credential")})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	if c.GetClusterUid() != target.ClusterUID {
		return nil, apierror.New(apierror.NotFound, "The cluster has no credential '%s'.", c.GetUid())
	}
	if c.GetSpec().GetClass() != clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
		return nil, apierror.New(apierror.Conflict, "The credential is a customer's. Its certificate may be valid for a day: revoke the class.")
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "credential", ID: c.GetUid(), ResourceID: target.ResourceID, ClusterUID: target.ClusterUID}, nil)
}

func (s *Server) revokeCredentials(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.RevokeRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	if asked.Class != "customer" && asked.Class != "sre" {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "class", Message: `Unsupported value: supported values: "customer", "sre"`}})
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, asked)
}

// onARMOperation accepts an action on the ARM operation in the path.
func (s *Server) onARMOperation(ctx context.Context, rq *request) (any, error) {
	item, err := s.armOperation(ctx, rq)
	if err != nil {
		return nil, err
	}
	if item.Value.Status.Terminal() {
		return nil, apierror.New(apierror.Conflict, "The operation has already ended: its status is %s.", item.Value.Status)
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "operation", ID: item.Value.OperationID, ResourceID: item.Key.ResourceID}, nil)
}

// errStop ends an iteration.
var errStop = errors.New("found")

func (s *Server) deleteOrphan(ctx context.Context, rq *request) (any, error) {
	id := rq.http.PathValue("bundle")
	var found *adminv1.Orphan
	_, err := s.orphans(ctx, func(orphan adminv1.Orphan) error {
		if orphan.ID != id {
			return nil
		}
		found = &orphan
		return errStop
	})
	switch {
	case err != nil && !errors.Is(err, errStop):
		return nil, err
	case found == nil:
		return nil, apierror.New(apierror.NotFound, "Orphan '%s' does not exist.", id)
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "bundle", ID: id}, adminv1.Message[*clusterservicev1.DeleteOrphanRequest]{
		Of: &clusterservicev1.DeleteOrphanRequest{WorkId: id, ProvisionShard: found.Consumer},
	})
}
