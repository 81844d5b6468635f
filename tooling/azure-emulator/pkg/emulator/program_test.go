package emulator

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
)

// runAsEmulator is the environment variable that makes the test binary run the emulator; its value is the folder for the
// data.
const runAsEmulator = "HCPMESH_TEST_AZURE_EMULATOR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(runAsEmulator); dir != "" {
		o := program{Listen: "127.0.0.1:0", AddressFile: filepath.Join(dir, "address"), DataDir: filepath.Join(dir, "data"),
			TLSCert: filepath.Join(dir, "tls.crt"), TLSKey: filepath.Join(dir, "tls.key"), Authority: os.Getenv("AUTHORITY"), SeedFile: filepath.Join(dir, "seed.json")}
		process.Run("azure-emulator", process.Options{OpsListen: "127.0.0.1:0", LogLevel: "error", DieWithParent: true}, o.Run)
		return
	}
	os.Exit(m.Run())
}

// TestAcknowledgedWritesSurviveKill kills the program with SIGKILL while it is written to, three times.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	dir := t.TempDir()
	signer := must.Get(authority.Open(dir, "test"))(t)
	must.Do(t, signer.Issue(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), x509.Certificate{}, "127.0.0.1"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(signer.CertificatePEM())
	issuer := must.Get(entratest.Start())(t)
	defer issuer.Close()
	bearer := must.Get(issuer.Token("https://management.azure.com", time.Now().Add(time.Hour)))(t)
	seed := `{"assignments": [{"principalId": "` + entratest.ObjectID + `", "role": "` + arm.OwnerRole + `", "scope": "/subscriptions/s"}]}`
	must.Do(t, os.WriteFile(filepath.Join(dir, "seed.json"), []byte(seed), 0o600))
	var acknowledged []string
	for round := range 3 {
		client, address, kill := startEmulator(t, dir, roots, issuer.Authority())
		call := func(method, name string) (int, error) {
			request, err := http.NewRequest(method, "https://"+address+"/subscriptions/s/resourceGroups/"+name+"?api-version=2021-04-01", strings.NewReader(`{"location":"westus3"}`))
			if err != nil {
				return 0, err
			}
			request.Header.Set("Authorization", "Bearer "+bearer)
			response, err := client.Do(request)
			if err != nil {
				return 0, err
			}
			return response.StatusCode, response.Body.Close()
		}
		for _, name := range acknowledged {
			if status, err := call(http.MethodGet, name); status != http.StatusOK {
				t.Fatalf("round %d: GET of the acknowledged %s: %d, %v", round, name, status, err)
			}
		}
		written := make(chan []string)
		go func() {
			var names []string
			for n := 0; ; n++ {
				name := fmt.Sprintf("g-%d-%d", round, n)
				if status, err := call(http.MethodPut, name); err != nil || status != http.StatusCreated {
					written <- names
					return
				}
				names = append(names, name)
				if n == 10 {
					kill()
				}
			}
		}()
		acknowledged = append(acknowledged, <-written...)
	}
	if len(acknowledged) < 30 {
		t.Errorf("only %d writes were acknowledged", len(acknowledged))
	}
}

// startEmulator starts the program and waits until it serves. kill kills it with SIGKILL and waits for its end.
func startEmulator(t *testing.T, dir string, roots *x509.CertPool, tokens string) (client *http.Client, address string, kill func()) {
	t.Helper()
	program := must.Get(os.Executable())(t)
	if err := os.Remove(filepath.Join(dir, "address")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), runAsEmulator+"="+dir, "AUTHORITY="+tokens)
	command.Stderr = os.Stderr
	must.Do(t, command.Start())
	kill = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(kill)
	eventually.Soon(t, "the emulator serves", func() error {
		text, err := os.ReadFile(filepath.Join(dir, "address"))
		address = strings.TrimSpace(string(text))
		return err
	})

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.RootCAs = roots
	return &http.Client{Transport: transport}, address, kill
}
