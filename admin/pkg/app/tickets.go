package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// tickets returns the ticket validator of the flags; nil if there is none and the policy needs none.
func (o *Options) tickets(policy *elevation.Policy) (ticket.Validator, error) {
	if o.TicketValidatorURL == "" {
		if policy.ValidatesTickets() {
			return nil, errors.New("--ticket-validator-url is required, because --access-policy-file has tickets validated")
		}
		return nil, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TicketValidatorCAFile != "" {
		authorities, err := certfile.LoadRoots(o.TicketValidatorCAFile)
		if err != nil {
			return nil, fmt.Errorf("--ticket-validator-ca-file: %w", err)
		}
		transport.TLSClientConfig.RootCAs = authorities.Pool()
	}
	validator, err := ticket.NewHTTP(o.TicketValidatorURL, o.TicketValidatorTokenFile, transport)
	if err != nil {
		return nil, fmt.Errorf("--ticket-validator-url: %w", err)
	}
	return validator, nil
}
