package emulator_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

const module = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

// skipped maps the client's tests that are not run to the reasons.
var skipped = map[string]string{}

// TestPublishedClient runs the emulator tests of the published Go client (azcosmos) against this emulator. The tests are
// copied from the module cache and compiled without changes, except for the ports of their endpoints.
func TestPublishedClient(t *testing.T) {
	dir := goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	if dir == "" {
		goCommand(t, ".", "mod", "download", module)
		dir = goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	}
	scratch := t.TempDir()
	cert, certFile := certificate(t, scratch)
	routing := serve(t, emulator.RoutingGateway, cert)
	compute := serve(t, emulator.ComputeGateway, cert)

	source := filepath.Join(scratch, "azcosmos")
	tests := copyModule(t, dir, source, map[string]string{
		"localhost:8081": "localhost:" + routing, "127.0.0.1:8081": "127.0.0.1:" + routing, "localhost:8903": "localhost:" + compute,
	})
	binary := filepath.Join(scratch, "azcosmos.test")
	goCommand(t, source, "test", "-c", "-o", binary, ".")

	var run []string
	for _, name := range tests {
		if reason := skipped[name]; reason != "" {
			t.Logf("skipped: %s: %s", name, reason)
			continue
		}
		run = append(run, name)
	}
	for name := range skipped {
		if !slices.Contains(tests, name) {
			t.Errorf("the client has no test %s, which is listed as skipped", name)
		}
	}
	cmd := exec.Command(binary, "-test.v", "-test.run", "^("+strings.Join(run, "|")+")$")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "EMULATOR=true", "SSL_CERT_FILE="+certFile)
	out, err := cmd.CombinedOutput()
	results := map[string]string{}
	verdict := regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if m := verdict.FindStringSubmatch(lines.Text()); m != nil {
			results[m[2]] = m[1]
		}
	}
	for _, name := range run {
		t.Run(name, func(t *testing.T) {
			if results[name] != "PASS" {
				t.Errorf("the client's test has the result %q", results[name])
			}
		})
	}
	if err != nil || t.Failed() {
		t.Fatalf("the client's tests: %v\n%s", err, out)
	}
	t.Logf("%d of the client's %d emulator tests passed", len(run), len(tests))
}

// goCommand runs the go command and returns its output.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// copyModule copies the source of the client, replaces the endpoints in its emulator tests, and returns the names of
// these tests.
func copyModule(t *testing.T, dir, to string, replace map[string]string) (tests []string) {
	t.Helper()
	pairs := make([]string, 0, 2*len(replace))
	for from, to := range replace {
		pairs = append(pairs, from, to)
	}
	replacer := strings.NewReplacer(pairs...)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name := d.Name(); strings.HasPrefix(name, "emulator_") && strings.HasSuffix(name, "_test.go") {
			for _, m := range function.FindAllSubmatch(text, -1) {
				tests = append(tests, string(m[1]))
			}
			text = []byte(replacer.Replace(string(text)))
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) == 0 {
		t.Fatalf("no emulator tests in %s", dir)
	}
	slices.Sort(tests)
	return tests
}

// serve starts an emulator and returns its port.
func serve(t *testing.T, gateway emulator.Gateway, cert tls.Certificate) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	s, err := emulator.Open(emulator.Options{
		DataDir: t.TempDir(), Key: emulator.WellKnownKey, Gateway: gateway,
		// The client's tests connect by name and expect an endpoint with an address.
		Endpoint: "https://127.0.0.1:" + port + "/",
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}
	h.StartTLS()
	t.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return port
}

// certificate creates a self-signed certificate and a file with it.
func certificate(t *testing.T, dir string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
