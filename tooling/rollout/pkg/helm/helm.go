// Package helm holds the action Helm, which installs a chart of the repository in a cluster with values from the configuration.
package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"helm.sh/helm/v3/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/install"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// Clusters gives access to Kubernetes clusters.
type Clusters interface {
	// Cluster returns the connection to the cluster with a name.
	Cluster(ctx context.Context, name string) (*rest.Config, error)
}

// Kubeconfigs are clusters whose kubeconfigs are files.
type Kubeconfigs struct {
	// Dir has a file NAME.kubeconfig for each cluster.
	Dir string
}

// Cluster reads the kubeconfig of a cluster.
func (k Kubeconfigs) Cluster(_ context.Context, name string) (*rest.Config, error) {
	if k.Dir == "" {
		return nil, fmt.Errorf("cluster %s: --kubeconfig-dir is not set", name)
	}
	file := filepath.Join(k.Dir, name+".kubeconfig")
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("cluster %s: --kubeconfig-dir: %w", name, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: reading its kubeconfig: %w", name, err)
	}
	return config, nil
}

// Helm installs charts.
type Helm struct {
	Configuration *deployment.Configuration
	Clusters      Clusters
	// Secrets is the provider of the charts' secrets: values.CSI or values.Secret. Empty means that of the cluster's platform.
	Secrets string
}

// Output is the output that identifies the chart and the values of a release. A rollback needs it.
const Output = "content"

type parameters struct {
	Cluster     string              `json:"cluster"`
	Chart       string              `json:"chart"`
	ReadyWithin definition.Duration `json:"readyWithin"`
	// ClientIDs and ObjectIDs are JSON objects: the client IDs of managed identities, and the object IDs of their principals, by name.
	ClientIDs string `json:"clientIds"`
	ObjectIDs string `json:"objectIds"`
	// EgressAddresses is a JSON array: the public addresses of the cluster.
	EgressAddresses string `json:"egressAddresses"`
}

// Run installs or upgrades the release.
func (h Helm) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	with, release, err := h.release(r)
	if err != nil {
		return nil, err
	}
	options, err := h.options(ctx, with, r.Log)
	if err != nil {
		return nil, err
	}
	result, err := install.Install(ctx, release, options)
	if err != nil {
		return nil, classified(err)
	}
	outputs := map[string]string{Output: result.Content}
	maps.DeleteFunc(outputs, func(name, _ string) bool { return !slices.Contains(r.Outputs, name) })
	return outputs, nil
}

// Rollback brings the release back to the chart and the values of the last success. It does not need them: the cluster has them.
func (h Helm) Rollback(ctx context.Context, r action.Request) error {
	with, err := decode(r)
	if err != nil {
		return err
	}
	target, err := h.target(r)
	if err != nil {
		return err
	}
	found, err := values.Find(with.Chart, target)
	if err != nil {
		return err
	}
	options, err := h.options(ctx, with, r.Log)
	if err != nil {
		return err
	}
	_, err = install.Rollback(ctx, with.Chart, found.Namespace, r.Last[Output], options)
	return classified(err)
}

// Content returns the digest of the chart with its values. The IDs of identities are not part of it, because they are inputs.
func (h Helm) Content(r action.Request) (map[string]string, error) {
	with, err := decode(r)
	if err != nil {
		return nil, err
	}
	target, err := h.target(r)
	if err != nil {
		return nil, err
	}
	for _, name := range values.Identities(target.Configuration) {
		target.ClientIDs[name], target.ObjectIDs[name] = name, name
	}
	release, err := load(r, with, target)
	if err != nil {
		return nil, err
	}
	content, err := install.Content(release)
	if err != nil {
		return nil, err
	}
	return map[string]string{"the content of the release " + with.Chart: content}, nil
}

// Preview writes the difference between the manifests that are deployed and those of the step.
func (h Helm) Preview(ctx context.Context, r action.Request, out io.Writer) error {
	with, release, err := h.release(r)
	if err != nil {
		return err
	}
	options, err := h.options(ctx, with, r.Log)
	if err != nil {
		return err
	}
	text, err := install.Diff(ctx, release, options)
	if err != nil {
		return classified(err)
	}
	_, err = io.WriteString(out, text)
	return err
}

func decode(r action.Request) (parameters, error) {
	var with parameters
	err := action.Decode(r, &with)
	return with, err
}

// target returns the target of the request without the IDs of identities.
func (h Helm) target(r action.Request) (values.Target, error) {
	rendered, err := h.Configuration.Render(r.Target)
	if err != nil {
		return values.Target{}, err
	}
	return values.Target{Name: r.Target.String(), Schema: h.Configuration.Schema, Configuration: rendered,
		ClientIDs: map[string]string{}, ObjectIDs: map[string]string{}, Secrets: h.Secrets}, nil
}

// release returns the chart of the request with its values.
func (h Helm) release(r action.Request) (parameters, install.Release, error) {
	with, err := decode(r)
	if err != nil {
		return with, install.Release{}, err
	}
	target, err := h.target(r)
	if err != nil {
		return with, install.Release{}, err
	}
	for _, input := range []struct {
		name, text string
		ids        *map[string]string
	}{{"clientIds", with.ClientIDs, &target.ClientIDs}, {"objectIds", with.ObjectIDs, &target.ObjectIDs}} {
		if input.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(input.text), input.ids); err != nil {
			return with, install.Release{}, fmt.Errorf("%s: %s: is not a JSON object of strings: %w", r.Step, input.name, err)
		}
	}
	if with.EgressAddresses != "" {
		if err := json.Unmarshal([]byte(with.EgressAddresses), &target.EgressAddresses); err != nil {
			return with, install.Release{}, fmt.Errorf("%s: egressAddresses: is not a JSON array of strings: %w", r.Step, err)
		}
	}
	release, err := load(r, with, target)
	return with, release, err
}

func load(r action.Request, with parameters, target values.Target) (install.Release, error) {
	found, err := values.Find(with.Chart, target)
	if err != nil {
		return install.Release{}, err
	}
	computed, err := found.Values()
	if err != nil {
		return install.Release{}, err
	}
	loaded, err := chart.Load(filepath.Join(r.Root, filepath.FromSlash(found.Folder)))
	if err != nil {
		return install.Release{}, err
	}
	return install.Release{Chart: loaded, Namespace: found.Namespace, Values: computed}, nil
}

func (h Helm) options(ctx context.Context, with parameters, log io.Writer) (install.Options, error) {
	cluster, err := h.Clusters.Cluster(ctx, with.Cluster)
	if err != nil {
		return install.Options{}, err
	}
	return install.Options{Cluster: cluster, ReadyWithin: time.Duration(with.ReadyWithin), Log: log}, nil
}

// classified returns an error with its class.
func classified(err error) error {
	var unready *install.NotReadyError
	var network net.Error
	class := action.ClassFailed
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &unready):
		if unready.Within > 0 {
			class = action.Timeout
		}
	case errors.Is(err, driver.ErrReleaseExists), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		class = action.Conflict
	case apierrors.IsTooManyRequests(err):
		class = action.Throttled
	case apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), errors.As(err, &network):
		class = action.Unavailable
	}
	return &action.Error{Class: class, Err: err}
}
