package emulator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct{ args, want string }{
		"complete":    {"--data-dir d --well-known-key", ""},
		"with tls":    {"--data-dir d --key-file k --tls-cert c --tls-key k", ""},
		"no data":     {"--well-known-key", "--data-dir"},
		"no key":      {"--data-dir d", "--key-file"},
		"tokens":      {"--data-dir d --authority a --account-file f", ""},
		"no account":  {"--data-dir d --authority a", "--account-file"},
		"two keys":    {"--data-dir d --well-known-key --key-file k", "--well-known-key"},
		"half of tls": {"--data-dir d --well-known-key --tls-cert c", "--tls-key"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			flags := flag.NewFlagSet("x", flag.ContinueOnError)
			var o program
			o.AddFlags(flags)
			must.Do(t, flags.Parse(strings.Fields(tc.args)))
			err := o.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestRun serves TLS on a free port, twice with the same data, to check that the data is released when Run returns.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	o := program{Listen: "127.0.0.1:0", AddressFile: filepath.Join(dir, "address"), DataDir: filepath.Join(dir, "data"), WellKnownKey: true,
		TLSCert: filepath.Join(dir, "tls.crt"), TLSKey: filepath.Join(dir, "tls.key")}
	for round := range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		p := process.New("cosmos-emulator", slog.New(slog.DiscardHandler))
		go func() { ended <- o.Run(ctx, p) }()
		address := ""
		eventually.Soon(t, fmt.Sprintf("the server of round %d listens", round), func() error {
			select {
			case err := <-ended:
				t.Fatalf("Run: %v", err)
			default:
			}
			text, err := os.ReadFile(o.AddressFile)
			address = strings.TrimSpace(string(text))
			return err
		})

		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		resp := must.Get(client.Get("https://" + address + "/dbs"))(t)
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), `"code":"Unauthorized"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		if ready := p.CheckReadiness(ctx); !ready.Ready {
			t.Errorf("not ready: %+v", ready)
		}
		client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := os.Remove(o.AddressFile); err != nil {
			t.Error(err)
		}
	}
}

// TestFullDiskIsNotReady fills the disk of the data. Reads succeed, and so do small writes into pages that are free.
func TestFullDiskIsNotReady(t *testing.T) {
	smalldisk.Run(t, 8<<20, func(t *testing.T, dir string) {
		o := program{Listen: "127.0.0.1:0", AddressFile: filepath.Join(t.TempDir(), "address"), DataDir: filepath.Join(dir, "data"), WellKnownKey: true}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		p := process.New("cosmos-emulator", slog.New(slog.DiscardHandler))
		go func() { ended <- o.Run(ctx, p) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		eventually.Soon(t, "the store is ready", func() error {
			if readiness := p.CheckReadiness(ctx); !readiness.Ready || len(readiness.Dependencies) == 0 {
				return fmt.Errorf("%+v", readiness)
			}
			return nil
		})

		filler := smalldisk.Fill(t, dir)
		if reason := p.CheckReadiness(ctx).NotReady["store"]; !strings.HasPrefix(reason, "the disk is full") || !strings.Contains(reason, dir) {
			t.Errorf("not ready because of %q, want the full disk of %s", reason, dir)
		}
		must.Do(t, os.Remove(filler))
		if readiness := p.CheckReadiness(ctx); !readiness.Ready {
			t.Errorf("after space was freed: %+v", readiness)
		}
	})
}

func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	raw := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	cert := must.Get(x509.ParseCertificate(der))(t)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}
