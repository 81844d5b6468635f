package mesh

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// ServerTLS returns the TLS configuration of the server. It accepts the connections of Clients, and records those that it refuses
// although the certificate is valid: a workload without any right calls the server. Connections without a valid certificate have no
// identity and no record.
func (a *Authorizer) ServerTLS(identity *Identity) *tls.Config {
	config := identity.ServerTLS(a.clients...)
	verify := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state)
		if refused := (*notAllowedError)(nil); errors.As(err, &refused) {
			_ = a.refuseCaller(context.Background(), Refusal{Err: err})
		}
		return err
	}
	return config
}

// refuseCaller records a refused caller and returns the error of its call. If a verified workload may not call the server at all, the
// refusal is one of the method Connect.
func (a *Authorizer) refuseCaller(ctx context.Context, r Refusal) error {
	if refused := (*notAllowedError)(nil); errors.As(r.Err, &refused) {
		r = Refusal{Client: refused.client(), Method: Connect, Err: a.denied(refused.client(), "any method", "")}
	}
	a.audit(ctx, r)
	return r.Err
}

// errNoIdentity returns the error of a caller without an identity.
func errNoIdentity(format string, arguments ...any) error {
	return apierror.New(apierror.Unauthenticated, format, arguments...).WithReason(ReasonNotAuthorized)
}
