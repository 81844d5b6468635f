package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
)

// kubectl runs the kubectl program against one API server.
type kubectl struct {
	t          *testing.T
	kubeconfig string
	// namespace is the default namespace; empty means that of the kubeconfig.
	namespace string
}

// inHosted returns a kubectl for a hosted cluster with the administrator's kubeconfig.
func inHosted(t *testing.T, ctx context.Context, id string) kubectl {
	t.Helper()
	return withKubeconfig(t, kubeconfigOf(t, ctx, id))
}

// kubeconfigOf returns the administrator's kubeconfig of a hosted cluster.
func kubeconfigOf(t *testing.T, ctx context.Context, id string) []byte {
	t.Helper()
	var content []byte
	awaitRead(t, ctx, "the kubeconfig of "+id, func() (err error) {
		content, err = management.Kubeconfig(ctx, regionEndpoints.Kubeconfigs, id)
		return err
	})
	return throughProxy(t, content)
}

// throughProxy returns a kubeconfig with the proxy of a region whose hosted API servers have names that do not resolve on the machine.
func throughProxy(t *testing.T, kubeconfig []byte) []byte {
	t.Helper()
	kubeconfig = must.Get(credential.WithProxy(kubeconfig, regionEndpoints.Proxy))(t)
	return kubeconfig
}

// readLimit bounds how long awaitRead repeats a read.
const readLimit = time.Minute

// awaitRead repeats a read until the server answers. It is for reads of what exists: while a process restarts or the machine is busy, a
// request without a result is no wrong result.
func awaitRead(t *testing.T, ctx context.Context, what string, read func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	eventually.Before(ctx, t, what+" can be read", read)
}

// withKubeconfig writes a kubeconfig to a file of the test.
func withKubeconfig(t *testing.T, content []byte) kubectl {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(path, content, 0o600))
	return kubectl{t: t, kubeconfig: path}
}

// hosting returns a kubectl for the management cluster and the namespace of a cluster's HostedCluster.
func hosting(t *testing.T, ctx context.Context, id string) kubectl {
	t.Helper()
	for _, path := range regionEndpoints.Kubeconfigs {
		k := kubectl{t: t, kubeconfig: path}
		var out string
		awaitRead(t, ctx, "the list of HostedClusters", func() (err error) {
			out, err = k.run(ctx, "get", "hostedclusters", "--all-namespaces", "-o", "json")
			return err
		})
		var list struct {
			Items []struct {
				Metadata struct {
					Namespace   string            `json:"namespace"`
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
			} `json:"items"`
		}
		must.Do(t, json.Unmarshal([]byte(out), &list))
		for _, item := range list.Items {
			if strings.EqualFold(item.Metadata.Annotations[managementcluster.AnnotationClusterResourceID], id) {
				k.namespace = item.Metadata.Namespace
				return k
			}
		}
	}
	t.Fatalf("no management cluster has a HostedCluster of %s", id)
	return kubectl{}
}

// run returns the output of kubectl. An error contains its standard error.
func (k kubectl) run(ctx context.Context, arguments ...string) (string, error) {
	if k.namespace != "" {
		arguments = append([]string{"--namespace", k.namespace}, arguments...)
	}
	command := exec.CommandContext(ctx, regionEndpoints.Kubectl, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig)
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// read returns what a JSONPath selects from objects.
func (k kubectl) read(ctx context.Context, objects, jsonpath string) (string, error) {
	return k.run(ctx, append(append([]string{"get"}, strings.Fields(objects)...), "-o", "jsonpath="+jsonpath)...)
}

// get is read for objects that exist. It repeats a read that fails.
func (k kubectl) get(ctx context.Context, objects, jsonpath string) string {
	k.t.Helper()
	var out string
	awaitRead(k.t, ctx, objects, func() (err error) {
		out, err = k.read(ctx, objects, jsonpath)
		return err
	})
	return out
}

// await waits until the selection satisfies wanted.
func (k kubectl) await(ctx context.Context, objects, jsonpath string, wanted func(string) bool) {
	k.t.Helper()
	eventually.Before(ctx, k.t, objects+" match", func() error {
		found, err := k.read(ctx, objects, jsonpath)
		if err == nil && !wanted(found) {
			err = fmt.Errorf("%s is %q", jsonpath, found)
		}
		return err
	})
}

// words returns a condition: a number of words, each of which satisfies each.
func words(count int, each func(string) bool) func(string) bool {
	return func(text string) bool {
		fields := strings.Fields(text)
		for _, field := range fields {
			if !each(field) {
				return false
			}
		}
		return len(fields) == count
	}
}

// equals returns a condition: equality with want.
func equals(want string) func(string) bool { return func(text string) bool { return text == want } }
