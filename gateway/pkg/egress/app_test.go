package egress

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheadertest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// parse returns the options of flags.
func parse(arguments ...string) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("gateway-egress", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.AddFlags(flags)
	if err := flags.Parse(append([]string{"--intent-keys-file=x", "--trust-domain=test"}, arguments...)); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// TestValidate checks that errors name the flag.
func TestValidate(t *testing.T) {
	const cosmos = "--cosmos-endpoint=https://localhost:8081"
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"complete":       {[]string{cosmos, "--listen=127.0.0.1:0", "--allow-host=Quay.io.", "--allow-port=443"}, ""},
		"two hosts":      {[]string{cosmos, "--listen=:0", "--allow-host=quay.io,cdn.quay.io"}, ""},
		"an empty host":  {[]string{cosmos, "--listen=:0", "--allow-host=quay.io,"}, "allow-host"},
		"only CONNECT":   {[]string{cosmos, "--listen-connect=127.0.0.1:0"}, ""},
		"no address":     {[]string{cosmos}, "--listen or --listen-connect"},
		"wildcard":       {[]string{cosmos, "--listen=:0", "--allow-host=*.azure.com"}, "allow-host"},
		"address":        {[]string{cosmos, "--listen=:0", "--allow-host=10.0.0.1"}, "allow-host"},
		"port 0":         {[]string{cosmos, "--listen=:0", "--allow-port=0"}, "allow-port"},
		"no connections": {[]string{cosmos, "--listen=:0", "--connections=0"}, "--connections"},
		"none per link":  {[]string{cosmos, "--listen=:0", "--connections-per-link=0"}, "--connections-per-link"},
		"no new ones":    {[]string{cosmos, "--listen=:0", "--new-connections-per-link=0"}, "--new-connections-per-link"},
		"no idle time":   {[]string{cosmos, "--listen=:0", "--idle-timeout=0"}, "--idle-timeout"},
		"negative drain": {[]string{cosmos, "--listen=:0", "--drain-connections=-1s"}, "--drain-connections"},
		"no keys":        {[]string{cosmos, "--listen=:0", "--intent-keys-file="}, "--intent-keys-file"},
		"no domain":      {[]string{cosmos, "--listen=:0", "--trust-domain="}, "--trust-domain"},
		"no Cosmos DB":   {[]string{"--listen=:0"}, "--cosmos-endpoint"},
	} {
		if _, err := parse(tc.arguments...); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestLinkInCosmosServesItsCluster runs the gateway with a real change feed. A link that is assigned serves a connection at once, with the hosts
// of its cluster. Its removal closes the connection.
func TestLinkInCosmosServesItsCluster(t *testing.T) {
	db, _ := databasetest.New(t)
	upstream := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		connection, err := upstream.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(connection, connection)
		_ = connection.Close()
	}()
	t.Cleanup(func() { _ = upstream.Close(); <-served })
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	private, public := filepath.Join(t.TempDir(), "private.json"), filepath.Join(t.TempDir(), "public.json")
	must.Do(t, errors.Join(intent.CreateKeys(private), keyfile.WritePublic(private, public)))
	issuer, audience := intent.RegionIssuer(intenttest.TrustDomain)
	signer := must.Get(intent.LoadSigner(private, issuer, audience))(t)
	options := must.Get(parse("--cosmos-endpoint=https://localhost:8081", "--listen-connect=127.0.0.1:0", "--allow-host=quay.io", "--intent-keys-file="+public, "--trust-domain="+intenttest.TrustDomain))(t)
	p := process.New("gateway-egress", slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, p, options, Parts{Database: db, Listeners: map[Protocol]net.Listener{Connect: listener}, Dialer: publicaddress.Dialer{
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("20.50.2.1")}, nil
			},
			Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", upstream.Addr().String())
			},
		}})
	}()
	connect := func(link uint32, target string) (net.Conn, int) {
		t.Helper()
		connection := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
		t.Cleanup(func() { _ = connection.Close() })
		must.Get(fmt.Fprintf(connection, "%sCONNECT %s HTTP/1.1\r\n\r\n", proxyheadertest.Link(t, link), target))(t)
		response := must.Get(http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect}))(t)
		return connection, response.StatusCode
	}
	eventually.Soon(t, "the gateway has read the links", func() error {
		if _, status := connect(7, "registry.example:443"); status != http.StatusForbidden {
			return fmt.Errorf("an unknown link gets %d", status)
		}
		return nil
	})
	if readiness := p.CheckReadiness(t.Context()); !readiness.Ready {
		t.Errorf("it is not ready: %+v", readiness)
	}
	now := time.Now().UTC()
	assigned := (&intenttest.Admin{Signer: signer}).EgressLink(t, database.EgressLinkDocument{LinkID: "7", ClusterUID: "a", ResourceID: "/a", Hosts: []string{"registry.example"}, OperationID: "one", RequestTime: now})
	must.Get(db.AssignEgressLink(t.Context(), 7, assigned, now))(t)
	var connection net.Conn
	eventually.Soon(t, "the link is served", func() error {
		var status int
		if connection, status = connect(7, "registry.example:443"); status != http.StatusOK {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
	must.Get(connection.Write([]byte("x")))(t)
	must.Get(io.ReadFull(connection, make([]byte, 1)))(t)
	must.Get(db.RemoveEgressLink(t.Context(), 7, "a", "two", now.Add(time.Second), time.Now()))(t)
	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("the connection of a removed link is open")
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
