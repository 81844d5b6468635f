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
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

const module = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

// supported lists the client's tests of operations that this emulator supports.
var supported = []string{
	"TestAAD_Emulator_UsesClientOptionsAudience", "TestItemTransactionalBatchError", "TestGlobalEndpointManagerEmulator", "TestGlobalEndpointManagerPolicyEmulator",
	"TestItemConcurrent", "TestItemIdEncodingComputeGW", "TestLoggingEndpointFailureAndRecovery", "TestLoggingAllowedHeaders", "TestSinglePartitionQuery",
	"TestSinglePartitionQueryWithParameters", "TestCrossPartitionQuery", "TestCrossPartitionQueryRejectedWhenEnableCrossPartitionIsFalse",
	"TestCrossPartitionQueryFailsIfGatewayCannotSatisfyRequest",
}

// TestPublishedClient runs emulator tests of the published Go client (azcosmos) against this emulator. The tests are
// copied from the module cache and compiled without changes, except for the ports of their endpoints.
func TestPublishedClient(t *testing.T) {
	dir := goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	if dir == "" {
		goCommand(t, ".", "mod", "download", module)
		dir = goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	}
	scratch := t.TempDir()
	cert, certFile := certificate(t, scratch)
	port := serve(t, cert)

	source := filepath.Join(scratch, "azcosmos")
	copyModule(t, dir, source, strings.NewReplacer("localhost:8081", "localhost:"+port, "127.0.0.1:8081", "127.0.0.1:"+port, "localhost:8903", "localhost:"+port))
	binary := filepath.Join(scratch, "azcosmos.test")
	goCommand(t, source, "test", "-c", "-o", binary, ".")

	cmd := exec.Command(binary, "-test.v", "-test.run", "^("+strings.Join(supported, "|")+")$")
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
	for _, name := range supported {
		t.Run(name, func(t *testing.T) {
			if results[name] != "PASS" {
				t.Errorf("the client's test has the result %q", results[name])
			}
		})
	}
	if err != nil || t.Failed() {
		t.Fatalf("the client's tests: %v\n%s", err, out)
	}
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

// copyModule copies the source of the client and replaces the endpoints in its emulator tests.
func copyModule(t *testing.T, dir, to string, endpoints *strings.Replacer) {
	t.Helper()
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
			text = []byte(endpoints.Replace(string(text)))
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o600)
	}))
}

// serve starts an emulator and returns its port.
func serve(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	s := must.Get(emulator.Open(emulator.Options{
		DataDir: t.TempDir(), Key: emulator.WellKnownKey,
		// The client's tests connect by name and expect an endpoint with an address.
		Endpoint: "https://127.0.0.1:" + port + "/",
	}))(t)
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
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	file := filepath.Join(dir, "ca.pem")
	must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
