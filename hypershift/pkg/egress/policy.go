// Package egress implements the proxy through which hosted API servers connect to the issuers of tokens that customers name. The
// proxy accepts only CONNECT, resolves the name itself, and connects only to public addresses at the standard port of https, so that
// a customer cannot make an API server send requests to the networks of the management cluster. A redirect and the URL of an
// issuer's keys lead to another CONNECT, for which the same rules apply.
//
// A client is a control plane, identified by the common name of its certificate, or the address of a pod. The proxy bounds the
// tunnels of each client, and the time and bytes of each tunnel. It never sees the content of a tunnel, which is TLS.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

// httpsPort is the only permitted port.
const httpsPort = 443

// maxHost is the length of the longest DNS name, in bytes.
const maxHost = 253

// Policy decides which targets a control plane may connect to. The zero Policy permits public addresses at port 443.
type Policy struct {
	// Exceptions are targets, host:port, that are permitted whatever their address is. A local region has the issuer of its tests here.
	Exceptions []string
	// Lookup resolves a name; net.DefaultResolver if it is nil.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Outcomes of a CONNECT, as in the label of the metric and in reports.
const (
	OutcomeAllowed     = "allowed"
	OutcomeInvalid     = "invalid"
	OutcomePort        = "port"
	OutcomeAddress     = "address"
	OutcomeUnresolved  = "unresolved"
	OutcomeUnreachable = "unreachable"
	OutcomeBusy        = "busy"
)

// refusalError is the reason why a target is not connected to.
type refusalError struct {
	outcome string
	err     error
}

func (r *refusalError) Error() string { return r.err.Error() }
func (r *refusalError) Unwrap() error { return r.err }

func refuse(outcome, format string, arguments ...any) error {
	return &refusalError{outcome, fmt.Errorf(format, arguments...)}
}

// outcomeOf returns the outcome of a CONNECT.
func outcomeOf(err error) string {
	var refused *refusalError
	switch {
	case err == nil:
		return OutcomeAllowed
	case errors.As(err, &refused):
		return refused.outcome
	}
	return OutcomeUnreachable
}

// ParseException checks an entry of Exceptions.
func ParseException(target string) error {
	_, _, err := split(target)
	return err
}

// split parses the target of a CONNECT. The host is a name or an address, in lower case and without a trailing dot.
func split(target string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return "", 0, refuse(OutcomeInvalid, "the target is not host:port")
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, refuse(OutcomeInvalid, "the port of the target is not a number from 1 to 65535")
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	invalid := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r))
	}
	if host == "" || len(host) > maxHost || strings.ContainsFunc(host, invalid) {
		return "", 0, refuse(OutcomeInvalid, "the host of the target is neither a DNS name nor an address")
	}
	return host, uint16(number), nil
}

// resolve returns the addresses to which a target may be connected to, in the order in which they are to be tried. An error of the
// policy states the outcome.
func (p *Policy) resolve(ctx context.Context, target string) ([]netip.AddrPort, error) {
	host, port, err := split(target)
	if err != nil {
		return nil, err
	}
	excepted := slices.ContainsFunc(p.Exceptions, func(exception string) bool {
		h, n, err := split(exception)
		return err == nil && h == host && n == port
	})
	if port != httpsPort && !excepted {
		return nil, refuse(OutcomePort, "port %d is not %d", port, httpsPort)
	}
	dialer := publicaddress.Dialer{Lookup: p.Lookup}
	addresses, err := dialer.Resolve(ctx, host, excepted)
	var refused *publicaddress.RefusedError
	switch {
	case errors.As(err, &refused):
		return nil, refuse(OutcomeAddress, "%w", err)
	case err != nil:
		return nil, refuse(OutcomeUnresolved, "%w", err)
	}
	permitted := make([]netip.AddrPort, 0, len(addresses))
	for _, address := range addresses {
		permitted = append(permitted, netip.AddrPortFrom(address, port))
	}
	return permitted, nil
}
