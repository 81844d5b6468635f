package tunnel

import (
	"context"
	"errors"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
)

// APIServer is the authority of CONNECT for the API server of the management cluster itself. It is not the ID of a cluster: those have no hyphen.
const APIServer = "management-cluster"

// GrantPath is the path of the request for a token, a POST in a tunnel.
const GrantPath = "/grants"

// Grant requests a token from the agent of a management cluster. Its errors are those of grant.Failure.
func (s *Server) Grant(ctx context.Context, managementCluster string, request grant.Request) (*grant.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, grant.Timeout)
	defer cancel()
	var issued *grant.Grant
	err := s.try(ctx, managementCluster, func(t *tunnel) (err error) {
		issued, err = grant.Post(ctx, t.client, "https://"+APIServer+GrantPath, request)
		return err
	})
	switch {
	case err == nil:
		return issued, nil
	case errors.Is(err, ErrNotConnected):
		return nil, grant.Failure(err, "The management cluster "+managementCluster+" has no working tunnel to this gateway.")
	}
	return nil, grant.Failure(err, "The agent of management cluster "+managementCluster+" does not issue a token now.")
}
