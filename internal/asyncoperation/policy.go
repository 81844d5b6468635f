package asyncoperation

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

// The headers of ARM's asynchronous notifications. A request names the URI to notify, and the response confirms the
// notification.
const (
	HeaderNotificationURI = "Azure-AsyncNotificationUri"
	HeaderNotification    = "Azure-AsyncNotification"
	NotificationEnabled   = "Enabled"
)

// maxURI is the length of the longest accepted URI, in bytes.
const maxURI = 2048

// Policy defines which URIs may be notified. The zero Policy allows none.
type Policy struct {
	// Hosts may be notified, including their subdomains: DNS names of Azure Resource Manager's endpoints in lower case.
	Hosts []string
	// Loopback also allows http and https to this machine, on any port. It is for local regions. It must never be set
	// where other programs listen on this machine.
	Loopback bool
}

// AddFlags registers the flags of the policy.
func (p *Policy) AddFlags(flags *flag.FlagSet) {
	p.Hosts = []string{"management.azure.com"}
	flags.Func("notification-hosts", "`DNS names` of Azure Resource Manager, separated by commas; Azure-AsyncNotificationUri may name these hosts and their subdomains (default management.azure.com)", func(text string) error {
		p.Hosts = nil
		for _, host := range strings.Split(text, ",") {
			if host = strings.ToLower(strings.TrimSpace(host)); !isName(host) {
				return fmt.Errorf("%q is not a DNS name", host)
			}
			p.Hosts = append(p.Hosts, host)
		}
		return nil
	})
	flags.BoolVar(&p.Loopback, "allow-loopback-notifications", false, "also accept http and https URIs on this machine in Azure-AsyncNotificationUri; for local regions only")
}

// ParseURI parses a URI and returns an error if it must not be notified. Allowed are
//   - https to a host of the policy, given by its DNS name, at the standard port;
//   - with Loopback, http or https to 127.0.0.1, [::1] or localhost at any port.
//
// A URI with user information, with a fragment or with more than 2048 bytes is rejected.
func (p *Policy) ParseURI(text string) (*url.URL, error) {
	if len(text) > maxURI {
		return nil, fmt.Errorf("it has more than %d bytes", maxURI)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URI")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, errors.New("it is not an https URI")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("it has user information or a fragment")
	}
	host := strings.ToLower(u.Hostname())
	if p.Loopback && isLoopback(host) {
		return u, nil
	}
	if u.Scheme != "https" || u.Port() != "" && u.Port() != "443" {
		return nil, errors.New("it is not https at the standard port")
	}
	for _, allowed := range p.Hosts {
		if isName(host) && (host == allowed || strings.HasSuffix(host, "."+allowed)) {
			return u, nil
		}
	}
	return nil, errors.New("its host is not one of Azure Resource Manager's")
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback() && address.Zone() == ""
}

// isName reports whether a host is a DNS name with at least two labels in lower case, and not an address.
func isName(host string) bool {
	if len(host) > 253 || !strings.Contains(host, ".") {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
				return false
			}
		}
	}
	// The last label of a DNS name never begins with a digit.
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

// The limits of one notification: its total time, and the size of the response's header.
const (
	notificationTimeout = 10 * time.Second
	maxResponseHeader   = 16 << 10
)

// Client returns the HTTP client for notifications. It follows no redirects and uses no proxy. It connects only to
// public addresses, whatever a name resolves to, or with Loopback to this machine.
func (p *Policy) Client() *http.Client {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return p.checkAddress(address)
		},
	}
	return &http.Client{
		Timeout:       notificationTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  notificationTimeout,
			MaxResponseHeaderBytes: maxResponseHeader,
			DisableCompression:     true,
			MaxConnsPerHost:        8,
			MaxIdleConns:           8,
			IdleConnTimeout:        30 * time.Second,
		},
	}
}

// checkAddress returns an error if an address, host:port, is not public.
func (p *Policy) checkAddress(hostport string) error {
	parsed, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return fmt.Errorf("connecting to %q for a notification: %w", hostport, err)
	}
	address := parsed.Addr().Unmap()
	if p.Loopback && address.IsLoopback() {
		return nil
	}
	if kind := publicaddress.Kind(address); kind != "" {
		return fmt.Errorf("connecting to %s for a notification: the address is not public (%s)", address, kind)
	}
	return nil
}
