package publicaddress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The time-outs of a Dialer.
const (
	// connectTimeout bounds resolving a name and connecting to its addresses, and dialTimeout connecting to one of them.
	connectTimeout = 10 * time.Second
	dialTimeout    = 3 * time.Second
)

// Dialer resolves names itself and connects only to public addresses: to exactly those that it has checked. The zero Dialer is usable.
type Dialer struct {
	// Lookup resolves a name; net.DefaultResolver if it is nil.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address; a net.Dialer if it is nil.
	Dial func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// RefusedError is the error about a name without a public address. Its text has no address, because readers must not learn how names resolve
// inside the network.
type RefusedError struct {
	Host string
	// Kinds are the kinds of its addresses, sorted.
	Kinds []string
}

// Error implements error.
func (r *RefusedError) Error() string {
	return fmt.Sprintf("%s has no public address: %s", r.Host, strings.Join(r.Kinds, ", "))
}

// UnresolvedError is the error about a name that does not resolve.
type UnresolvedError struct {
	Host string
	Err  error
}

// Error implements error.
func (u *UnresolvedError) Error() string { return fmt.Sprintf("resolving %s: %v", u.Host, u.Err) }

// Unwrap returns the error of the resolver.
func (u *UnresolvedError) Unwrap() error { return u.Err }

// Resolve returns the addresses of a host that may be connected to, in the order of the resolver: the public ones, or all if the host is
// excepted. The host is a name without a trailing dot, or an address. The error is a *RefusedError or an *UnresolvedError.
func (d *Dialer) Resolve(ctx context.Context, host string, excepted bool) ([]netip.Addr, error) {
	addresses, err := d.lookup(ctx, host)
	if err != nil {
		return nil, &UnresolvedError{host, err}
	}
	var permitted []netip.Addr
	kinds := []string{}
	for _, address := range addresses {
		address = address.Unmap()
		if kind := Kind(address); kind != "" && !excepted {
			kinds = append(kinds, kind)
			continue
		}
		permitted = append(permitted, address)
	}
	if len(permitted) == 0 {
		slices.Sort(kinds)
		return nil, &RefusedError{host, slices.Compact(kinds)}
	}
	return permitted, nil
}

func (d *Dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	if d.Lookup != nil {
		return d.Lookup(ctx, host)
	}
	// With a trailing dot the name is absolute: the search domains of a pod do not apply.
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
	if err == nil && len(addresses) == 0 {
		err = errors.New("no address")
	}
	return addresses, err
}

// Connect resolves a host and connects to the first of its addresses that accepts a connection, within 10 s. An error that is neither a
// *RefusedError nor an *UnresolvedError is that of all addresses.
func (d *Dialer) Connect(ctx context.Context, host string, port uint16, excepted bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addresses, err := d.Resolve(ctx, host, excepted)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, address := range addresses {
		connection, err := d.dial(ctx, netip.AddrPortFrom(address, port))
		if err == nil {
			return connection, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

func (d *Dialer) dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	if d.Dial != nil {
		return d.Dial(ctx, address)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(ctx, "tcp", address.String())
}
