// Package istiodtest runs istiod, the control plane of Istio, for tests. istiod reads the objects of a real API server, validates them,
// and sends what follows from them to the data plane (xDS).
package istiodtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

const (
	// startTimeout bounds the start of istiod on a busy machine.
	startTimeout = 2 * time.Minute
	// maxOutput bounds the output in an error.
	maxOutput = 4 << 10
	// attempts is the number of starts, because another process can take a port that was free.
	attempts = 3
)

// Namespace is the namespace of istiod. Policies in it apply to all namespaces.
const Namespace = "istio-system"

// Programs returns the folder with Istio's programs, in a nightly run; another run skips the test. Istio compiles for about six minutes of CPU time once.
func Programs(t testing.TB) string {
	t.Helper()
	nightly.Only(t)
	return filepath.Dir(nightly.Program(t, "istio", "istio/pilot-discovery"))
}

// InstallDefinitions installs the CustomResourceDefinitions of the pinned istio.io/api in an API server, and returns its configuration.
func InstallDefinitions(t testing.TB, cluster *kubeapitest.Cluster) *rest.Config {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatalf("find the module istio.io/api: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	definitions := filepath.Join(strings.TrimSpace(string(dir)), "kubernetes", "customresourcedefinitions.gen.yaml")
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{definitions}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	return config
}

// Istiod is a running istiod.
type Istiod struct {
	// XDS is the address of the discovery service, which does not authenticate its clients.
	XDS string
	// web is the address of health and of the validating webhook.
	web string
	// log is the file with the output.
	log string
}

// Start starts istiod for the objects of an API server with Istio's definitions, and returns when it has read them. It is killed at the
// end of the test.
func Start(t testing.TB, cluster *kubeapitest.Cluster, trustDomain string) *Istiod {
	t.Helper()
	program := filepath.Join(Programs(t), "pilot-discovery")
	dir := t.TempDir()
	settings := filepath.Join(dir, "mesh.yaml")
	if err := os.WriteFile(settings, []byte("trustDomain: "+trustDomain+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	for range attempts {
		var started *Istiod
		if started, err = start(t, program, dir, "--kubeconfig="+cluster.Kubeconfig(), "--meshConfig="+settings); err == nil {
			return started
		}
		if !errors.Is(err, errExited) {
			break
		}
	}
	t.Fatal(err)
	return nil
}

var errExited = errors.New("istiod terminated during its start")

func start(t testing.TB, program, dir string, arguments ...string) (*Istiod, error) {
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	i := &Istiod{XDS: addresses[0], web: addresses[1], log: filepath.Join(dir, "istiod.log")}
	output, err := os.Create(i.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	arguments = append([]string{"discovery", "--namespace=" + Namespace, "--grpcAddr=" + i.XDS, "--httpAddr=" + i.web,
		"--monitoringAddr=" + addresses[2], "--httpsAddr=", "--secureGRPCAddr=", "--ctrlz_port=0"}, arguments...)
	command := exec.Command(program, arguments...)
	command.Dir, command.Stdout, command.Stderr = dir, output, output
	// istiod issues no certificates here, and does not register its webhooks.
	command.Env = append(os.Environ(), "ENABLE_CA_SERVER=false", "INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME=",
		"PILOT_ENABLE_GATEWAY_API=false")
	process, err := spawn.Start(command, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	if err := i.awaitReady(t.Context(), process); err != nil {
		process.Kill()
		text, _ := os.ReadFile(i.log)
		return nil, fmt.Errorf("%w:\n%s", err, text[max(0, len(text)-maxOutput):])
	}
	t.Cleanup(process.Kill)
	return i, nil
}

// freeAddresses returns loopback addresses that were free.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // after the last one, so that all differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// awaitReady waits until istiod has read the objects of the API server.
func (i *Istiod) awaitReady(ctx context.Context, process *spawn.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("istiod was not ready in time"))
	defer cancel()
	go func() {
		select {
		case <-process.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := eventually.Repeat(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.web+"/ready", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	select {
	case <-process.Exited():
		return errExited
	default:
		return err
	}
}

// Log returns the output of istiod.
func (i *Istiod) Log() string {
	text, _ := os.ReadFile(i.log)
	return string(text)
}

// Validate sends an object to the webhook with which istiod validates objects that are created. It returns the warnings, and an error
// if istiod rejects the object.
func (i *Istiod) Validate(ctx context.Context, object []byte) (warnings []string, err error) {
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.web+"/validate", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("istiod's webhook returned %s: %s", response.Status, answer)
	}
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, err
	}
	switch {
	case review.Response == nil:
		return nil, errors.New("istiod's webhook returned no response")
	case !review.Response.Allowed:
		return review.Response.Warnings, errors.New(review.Response.Result.Message)
	}
	return review.Response.Warnings, nil
}
