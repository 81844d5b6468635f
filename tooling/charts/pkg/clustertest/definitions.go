package clustertest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
)

// definitions returns the modules with the definitions, and their folders.
func definitions() map[string]string {
	return map[string]string{
		"istio.io/api":                                       "kubernetes",
		"github.com/openshift/hypershift":                    "cmd/install/assets/crds/hypershift-operator",
		"github.com/prometheus-operator/prometheus-operator": "example/prometheus-operator-crd",
		"sigs.k8s.io/secrets-store-csi-driver":               "config/crd/bases",
	}
}

// InstallDefinitions installs the CustomResourceDefinitions that the charts use, and waits until the API server serves them. They come from the modules
// that tooling/third-party/crds pins. No module has the definition of PodMonitors that AKS' metrics add-on installs: the add-on has that of the
// Prometheus operator in another API group, and so does this function.
func InstallDefinitions(t testing.TB, cluster *rest.Config) {
	t.Helper()
	var folders []string
	for module, folder := range definitions() {
		folders = append(folders, filepath.Join(DefinitionsFolder(t, module), filepath.FromSlash(folder)))
	}
	folders = append(folders, addOnDefinitions(t))
	if _, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{Paths: folders, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
}

// addOnDefinitions returns a folder with the definition of PodMonitors of AKS' metrics add-on.
func addOnDefinitions(t testing.TB) string {
	t.Helper()
	const operator = "github.com/prometheus-operator/prometheus-operator"
	definition, err := os.ReadFile(filepath.Join(DefinitionsFolder(t, operator), definitions()[operator], "monitoring.coreos.com_podmonitors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The group is in the name of the definition and in its specification.
	moved := bytes.ReplaceAll(definition, []byte("monitoring.coreos.com"), []byte("azmonitoring.coreos.com"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "podmonitors.yaml"), moved, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// DefinitionsFolder returns the folder of a module that tooling/third-party/crds pins.
func DefinitionsFolder(t testing.TB, module string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = filepath.Join(charttest.Root(t), "tooling/third-party/crds")
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("download %s: %v: %s", module, err, out)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		t.Fatal(err)
	}
	return downloaded.Dir
}
