package mesh

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	sidecarOfBackend = `By=spiffe://local/ns/backend/sa/backend;Hash=0a;Subject="";URI=spiffe://local/ns/frontend/sa/frontend`
	serverID         = "spiffe://local/ns/cluster-service/sa/cluster-service"
	fromFrontend     = "By=" + serverID + `;Hash=0b1c;Subject="";URI=spiffe://local/ns/frontend/sa/frontend`
	gatewayID        = "spiffe://local/ns/ingress/sa/arm"
)

// TestLastForwarded reads headers as Envoy writes them, and malformed ones.
func TestLastForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		header   string
		by, uris []string
		err      error
	}{
		"one element":        {`By=spiffe://a;Hash=ff;Subject="";URI=spiffe://b`, []string{"spiffe://a"}, []string{"spiffe://b"}, nil},
		"the last of three":  {`By=1;URI=1,By=2;URI=2,By=3;URI=3`, []string{"3"}, []string{"3"}, nil},
		"a space of a list":  {`By=1;URI=1, By=2;URI=2`, []string{"2"}, []string{"2"}, nil},
		"a quoted subject":   {`By=1;Subject="CN=\"x\",O=a;b=c,URI=4";URI=2`, []string{"1"}, []string{"2"}, nil},
		"repeated keys":      {`By=1;By=2;URI=3;URI=4;DNS=a;DNS=b`, []string{"1", "2"}, []string{"3", "4"}, nil},
		"keys in any case":   {`by=1;uRI=2`, []string{"1"}, []string{"2"}, nil},
		"an empty URI":       {`By=1;URI=`, []string{"1"}, []string{""}, nil},
		"a value with =":     {`URI=spiffe://a?b=c`, nil, []string{"spiffe://a?b=c"}, nil},
		"empty":              {``, nil, nil, errPair},
		"no pair":            {`By`, nil, nil, errPair},
		"an empty element":   {`By=1,,By=2`, nil, nil, errPair},
		"an empty pair":      {`By=1;;URI=2`, nil, nil, errPair},
		"an end in a comma":  {`By=1,`, nil, nil, errPair},
		"no end of quotes":   {`By=1;Subject="x`, nil, nil, errQuotes},
		"a final backslash":  {`Subject="x\`, nil, nil, errQuotes},
		"text after quotes":  {`Subject="x"y;URI=1`, nil, nil, errQuotes},
		"quotes in the text": {`URI=a"b"`, nil, nil, errQuotes},
		"a quoted key":       {`"URI"=a`, nil, nil, errPair},
	} {
		got, err := lastForwarded(c.header)
		if err != c.err || err == nil && (!slices.Equal(got.by, c.by) || !slices.Equal(got.uris, c.uris)) {
			t.Errorf("%s: %s: got %+v, %v", name, c.header, got, err)
		}
	}
}

// FuzzClientCannotForge sends a header of a client through a sidecar. The caller is the one in the certificate, or the request is refused.
func FuzzClientCannotForge(f *testing.F) {
	for _, sent := range []string{
		"", sidecarOfBackend, fromFrontend, `x="`, `x="\`, `x=\`, `x="a`, `"`, `By=` + serverID + `;URI=spiffe://local/ns/admin/sa/admin;Subject="`, ",", ";", " ", "\x00",
		`a="b",c="d`, `Subject="\"`, `URI=spiffe://local/ns/admin/sa/admin`,
	} {
		f.Add(sent)
	}
	sidecar := must.Get(NewSidecar(serverID, gatewayID))(f)
	f.Fuzz(func(t *testing.T, sent string) {
		for _, own := range []string{fromFrontend, strings.Replace(fromFrontend, `Subject=""`, `Subject="CN=a\"b\\,O=\"c"`, 1)} {
			id, err := sidecar.caller(netip.MustParseAddr("127.0.0.6"), []string{sent + "," + own})
			if err == nil && id != (ID{"local", Frontend}) {
				t.Errorf("the header %q of a client makes it %+v", sent, id)
			}
		}
	})
}

// TestCallerOfSidecar gives the Sidecar of Cluster Service requests from different addresses and with different headers.
func TestCallerOfSidecar(t *testing.T) {
	from := func(uri string) []string { return []string{"By=" + serverID + `;Hash=0b1c;Subject="";URI=` + uri} }
	frontend, frontDoor := ID{"local", Frontend}, ID{"local", ARMFrontDoor}
	for name, c := range map[string]struct {
		address string
		headers []string
		want    ID // zero if the request is refused
	}{
		"sidecar":                           {"127.0.0.6", []string{fromFrontend}, frontend},
		"sidecar with IPv6":                 {"::6", []string{fromFrontend}, frontend},
		"sidecar with mapped IPv4":          {"::ffff:127.0.0.6", []string{fromFrontend}, frontend},
		"several elements":                  {"127.0.0.6", []string{sidecarOfBackend + "," + fromFrontend}, frontend},
		"gateway":                           {"127.0.0.6", from(gatewayID), frontDoor},
		"another program of the pod":        {"127.0.0.1", []string{fromFrontend}, ID{}},
		"another pod":                       {"10.2.0.7", []string{fromFrontend}, ID{}},
		"another pod with IPv6":             {"fd00::6", []string{fromFrontend}, ID{}},
		"no address":                        {"", []string{fromFrontend}, ID{}},
		"no header":                         {"127.0.0.6", nil, ID{}},
		"an empty header":                   {"127.0.0.6", []string{""}, ID{}},
		"two headers":                       {"127.0.0.6", []string{fromFrontend, fromFrontend}, ID{}},
		"element of another sidecar":        {"127.0.0.6", []string{sidecarOfBackend}, ID{}},
		"element of another sidecar last":   {"127.0.0.6", []string{fromFrontend + "," + sidecarOfBackend}, ID{}},
		"malformed":                         {"127.0.0.6", []string{`x="` + fromFrontend}, ID{}},
		"no By":                             {"127.0.0.6", []string{"URI=spiffe://local/ns/frontend/sa/frontend"}, ID{}},
		"two By":                            {"127.0.0.6", []string{"By=" + serverID + ";" + fromFrontend}, ID{}},
		"no URI":                            {"127.0.0.6", []string{"By=" + serverID}, ID{}},
		"an empty URI":                      {"127.0.0.6", from(""), ID{}},
		"two URIs":                          {"127.0.0.6", []string{fromFrontend + ";URI=spiffe://local/ns/admin/sa/admin"}, ID{}},
		"two accounts":                      {"127.0.0.6", from("spiffe://local/ns/frontend/sa/admin"), ID{}},
		"an escaped name":                   {"127.0.0.6", from("spiffe://local/ns/front%65nd/sa/frontend"), ID{}},
		"a URI with a user":                 {"127.0.0.6", from("spiffe://x@local/ns/frontend/sa/frontend"), ID{}},
		"workload with the name of gateway": {"127.0.0.6", from("spiffe://local/ns/arm-frontdoor/sa/arm-frontdoor"), ID{}},
		"another account of the gateway":    {"127.0.0.6", from("spiffe://local/ns/ingress/sa/default"), ID{}},
		"gateway of another trust domain":   {"127.0.0.6", from(strings.Replace(gatewayID, "local", "other", 1)), ID{}},
	} {
		sidecar := must.Get(NewSidecar(serverID, gatewayID))(t)
		address, _ := netip.ParseAddr(c.address)
		id, err := sidecar.caller(address, c.headers)
		if id != c.want || (err == nil) != (c.want != ID{}) || err != nil && apierror.KindOf(err) != apierror.Unauthenticated {
			t.Errorf("%s: got %+v, %v, want %+v", name, id, err, c.want)
		}
	}
}

// TestSidecarWithoutGateway checks that the name of the front door alone has no rights.
func TestSidecarWithoutGateway(t *testing.T) {
	sidecar := must.Get(NewSidecar(serverID))(t)
	for _, uri := range []string{gatewayID, "spiffe://local/ns/arm-frontdoor/sa/arm-frontdoor", ""} {
		if id, err := sidecar.caller(netip.MustParseAddr("127.0.0.6"), []string{"By=" + serverID + ";URI=" + uri}); err == nil {
			t.Errorf("%q is %+v", uri, id)
		}
	}
}

// TestSidecarDoesNotVerifyServers documents that the process connects without TLS: its sidecar encrypts and verifies.
func TestSidecarDoesNotVerifyServers(t *testing.T) {
	sidecar := must.Get(NewSidecar(serverID))(t)
	if protocol := sidecar.ClientCredentials(MaestroServer).Info().SecurityProtocol; protocol != "insecure" {
		t.Errorf("gRPC uses %s", protocol)
	}
	if transport := sidecar.ClientTransport(MaestroServer); transport.TLSClientConfig != nil || transport.Proxy != nil || sidecar.Scheme() != "http" {
		t.Errorf("HTTP uses %+v at %s URLs", transport, sidecar.Scheme())
	}
	var _ http.RoundTripper = sidecar.ClientTransport(MaestroServer)
}
