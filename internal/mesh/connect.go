package mesh

import (
	"context"
	"crypto/tls"
	"errors"
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
			a.audit(context.Background(), Refusal{Client: refused.client(), Method: Connect, Err: a.denied(refused.client(), "any method", "")})
		}
		return err
	}
	return config
}
