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
)

// The headers of ARM's asynchronous notifications: a caller names where it wants to be told, and hears whether it will be.
const (
	HeaderNotificationURI = "Azure-AsyncNotificationUri"
	HeaderNotification    = "Azure-AsyncNotification"
	NotificationEnabled   = "Enabled"
)

// maxURI is the longest URI that is accepted.
const maxURI = 2048

// Policy says where notifications may go. The zero Policy allows none.
type Policy struct {
	// Hosts may be notified, and all hosts beneath them: DNS names in lower case, of Azure Resource Manager's endpoints.
	Hosts []string
	// Loopback also allows http and https to this machine, on any port: for a region that runs on one machine. It must
	// never be set where anything but the region itself listens there.
	Loopback bool
}

// AddFlags registers the policy's flags.
func (p *Policy) AddFlags(flags *flag.FlagSet) {
	p.Hosts = []string{"management.azure.com"}
	flags.Func("notification-hosts", "`DNS names`, separated by commas, of Azure Resource Manager: they and hosts beneath them may be named in Azure-AsyncNotificationUri (default management.azure.com)", func(text string) error {
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

// ParseURI returns the URI that a notification may be sent to, or says why it must not. What is allowed:
//   - https to a host of the policy, named by its DNS name, at the standard port;
//   - with Loopback, http or https to 127.0.0.1, [::1] or localhost at any port;
//
// and neither has user information or a fragment, or is longer than 2048 bytes.
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

// isName reports whether a host is a DNS name of at least two labels in lower case, and no address.
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
	// The last label of a name is never a number.
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

// The bounds of one notification: how long it may take in all, and how much of an answer is taken.
const (
	notificationTimeout = 10 * time.Second
	maxAnswerHeader     = 16 << 10
)

// Client makes the HTTP client of notifications. It follows no redirect and uses no proxy, and connects to nothing but
// public addresses, whatever a name resolves to at that moment, or, with Loopback, this machine.
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
			MaxResponseHeaderBytes: maxAnswerHeader,
			DisableCompression:     true,
			MaxConnsPerHost:        8,
			MaxIdleConns:           8,
			IdleConnTimeout:        30 * time.Second,
		},
	}
}

// notPublic are the ranges besides those that netip knows as private, loopback, link-local or multicast: of this network,
// shared by carriers, for protocols, documentation, measurements, translation, and reserved.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	// Azure's own virtual address for the services of a host.
	netip.MustParsePrefix("168.63.129.16/32"),
}

// globalUnicast is what of IPv6 is routed; translated IPv4 addresses within it are not taken either.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	translated    = []netip.Prefix{netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16")}
)

// checkAddress refuses to connect to an address, host:port, that is not public.
func (p *Policy) checkAddress(hostport string) error {
	parsed, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return fmt.Errorf("connecting to %q for a notification: %w", hostport, err)
	}
	address := parsed.Addr().Unmap()
	if p.Loopback && address.IsLoopback() {
		return nil
	}
	if !isPublic(address) {
		return fmt.Errorf("the address %s is not public: nothing there may be notified", address)
	}
	return nil
}

func isPublic(address netip.Addr) bool {
	if !address.IsGlobalUnicast() || address.IsPrivate() || address.Zone() != "" {
		return false
	}
	prefixes := notPublic
	if address.Is6() {
		if !globalUnicast.Contains(address) {
			return false
		}
		prefixes = translated
	}
	for _, prefix := range prefixes {
		if prefix.Contains(address) {
			return false
		}
	}
	return true
}
