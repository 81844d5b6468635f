package tunnel

import (
	"context"
	"errors"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// APIServer is the authority of CONNECT for the API server of the management cluster itself. It is not the ID of a cluster: those have no hyphen.
const APIServer = "management-cluster"

// GrantPath is the path of the request for a token, a POST in a tunnel.
const GrantPath = "/grants"

// Grant requests a token from the agent of a management cluster. The error of a refusal is an *apierror.Error of the kind PermissionDenied, and that of
// everything else one of the kind Unavailable.
func (s *Server) Grant(ctx context.Context, managementCluster string, request grant.Request) (*grant.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, grant.Timeout)
	defer cancel()
	var issued *grant.Grant
	err := s.try(ctx, managementCluster, func(t *tunnel) (err error) {
		issued, err = grant.Post(ctx, t.client, "https://"+APIServer+GrantPath, request)
		return err
	})
	refused := new(grant.RefusedError)
	switch {
	case err == nil:
		return issued, nil
	case errors.As(err, &refused) && refused.Final():
		return nil, apierror.New(apierror.PermissionDenied, "%s", refused.Reason).WithCause(err)
	case errors.Is(err, ErrNotConnected):
		return nil, apierror.New(apierror.Unavailable, "The management cluster %s has no working tunnel to this gateway.", managementCluster).WithCause(err)
	}
	return nil, apierror.New(apierror.Unavailable, "The agent of management cluster %s does not issue a token now.", managementCluster).WithCause(err)
}
