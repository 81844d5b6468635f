package app

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestOptions(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	pods := "--kube-apiserver-image=r.example/kube-apiserver" + digest + " --etcd-image=r.example/etcd" + digest
	process := " --kube-apiserver=a --etcd-servers=b --etcd-authority-dir=d --state-dir=c"
	cases := map[string]struct{ reason, args, names string }{
		"Status":          {"status fidelity needs only a management cluster", "--kubeconfig=k --fidelity=status", ""},
		"Process":         {"the default", "--kubeconfig=k" + process, ""},
		"NoKubeconfig":    {"the service account of a pod", "--fidelity=status", ""},
		"ProcessWithout":  {"process fidelity is the default and needs programs", "--kubeconfig=k", "--kube-apiserver"},
		"Half":            {"process fidelity needs all four flags", "--kubeconfig=k --fidelity=status --state-dir=c", "--etcd-servers"},
		"BadFidelity":     {"only two fidelities exist", "--kubeconfig=k --fidelity=perfect", "--fidelity"},
		"NegativeTime":    {"a factor is not negative", "--kubeconfig=k --fidelity=status --time-scale=-1", "--time-scale"},
		"Pods":            {"control planes need no programs if they are pods", pods, ""},
		"HalfPods":        {"a control plane needs an etcd", "--kube-apiserver-image=r.example/kube-apiserver" + digest, "--etcd-image"},
		"PodsByTag":       {"a tag can change", strings.Replace(pods, digest, ":v1", 1), "--kube-apiserver-image"},
		"PodsAndProcess":  {"control planes are either", pods + process, "is for control planes that are processes"},
		"PodsWithEgress":  {"pods have no egress selection", pods + " --egress-proxy=https://p --egress-authority-dir=e", "--egress-proxy"},
		"BadPorts":        {"a range has two bounds", "--kubeconfig=k --hosted-ports=7", "hosted-ports"},
		"UnknownFlag":     {"unknown flags are rejected", "--kubeconfig=k --fidelty=status", "fidelty"},
		"EgressProxy":     {"the proxy accepts only certificates of its authority", "--kubeconfig=k --egress-proxy=https://p --egress-authority-dir=e" + process, ""},
		"NoEgressAuth":    {"the proxy would refuse every control plane", "--kubeconfig=k --egress-proxy=https://p" + process, "--egress-authority-dir"},
		"CleartextEgress": {"the certificate would not be sent", "--kubeconfig=k --egress-proxy=http://p --egress-authority-dir=e" + process, "--egress-proxy"},
		"NoStartsAllowed": {"no server could start", "--kubeconfig=k --concurrent-starts=0" + process, "--concurrent-starts"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var options Options
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			options.AddFlags(flags)
			err := flags.Parse(strings.Fields(c.args))
			if err == nil {
				err = options.Validate()
			}
			if c.names == "" && err != nil || c.names != "" && (err == nil || !strings.Contains(err.Error(), c.names)) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// TestReleasesNeedAKubelet starts a runtime with a catalogue from which no node could report its kubelet.
func TestReleasesNeedAKubelet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catalogue.yaml")
	text := "repository: r.example/ocp\nreleases:\n- {version: 4.20.8, digest: 'sha256:" + strings.Repeat("0a", 32) + "', architecture: Multi, channels: []}\n"
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	err := New(Options{ReleaseCatalog: file}, slog.New(slog.DiscardHandler)).RunWith(t.Context(), &rest.Config{})
	if err == nil || !strings.Contains(err.Error(), "release 4.20.8 has no kubelet") {
		t.Errorf("the runtime starts with a release without a kubelet: %v", err)
	}
}
