// Package managementaccess limits what Maestro's agent, monitor's prober, the log forwarder, the egress proxy and the agent of tunnels can do on a
// management cluster. Whoever can publish works could otherwise run programs there, or give themselves any right. A role permits the agent the
// kinds that Cluster Service applies. An admission policy permits it changes only in namespaces of clusters, only the fields that Cluster Service
// renders, only images of the region's repositories by digest, and of other kinds only the removal of finalizers. The file rendered.yaml lists
// the fields; Cluster Service's tests generate it. The prober may read HostedClusters and what it needs to reach their API servers, and change
// one annotation. The forwarder may read namespaces and HostedClusters, and change another annotation. The egress proxy may read which
// HostedCluster a control plane belongs to, and change a third one. The agent of tunnels may read which clusters exist and where their API
// servers are, and issue tokens of two service accounts for access sessions of engineers.
//
// The folder local has what only local regions have: the namespace of the agent of tunnels, which a chart gets from the pipelines, and the roles of the
// forwarder and the egress proxy. Their policies are that of the prober with another annotation.
package managementaccess

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// The Kubernetes users that the objects limit: Maestro's agent, the prober of monitor, the log forwarder, the egress proxy, and the agent of tunnels.
const (
	Agent     = "maestro-agent"
	Prober    = "monitor-inside"
	Forwarder = "log-forwarder"
	Egress    = "egress-proxy"
	Tunnel    = "gateway-tunnel"
)

// Users returns all users that the objects limit.
func Users() []string { return []string{Agent, Prober, Forwarder, Egress, Tunnel} }

// SessionAccount returns the name of the service account of access sessions with the management cluster that have a level. Its namespace is Tunnel.
func SessionAccount(level adminv1.Level) string { return "access-" + string(level) }

//go:embed objects local
var files embed.FS

// policyFile is the name of the files of admission policies.
const policyFile = "3-policy.yaml"

// Objects returns the objects that limit a user in YAML, by name of their file. A chart gives the program a service account instead.
// releaseRepositories are the repositories of release images, separated by commas, that the policy of Maestro's agent permits.
func Objects(user, releaseRepositories string) (map[string][]byte, error) {
	objects := map[string][]byte{}
	entries, err := files.ReadDir("objects/" + user)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if objects[entry.Name()], err = files.ReadFile("objects/" + user + "/" + entry.Name()); err != nil {
			return nil, err
		}
	}
	if user == Agent {
		objects[policyFile], err = addRendered(objects[policyFile], releaseRepositories)
	}
	return objects, err
}

// repositoryPattern matches a repository with its registry.
var repositoryPattern = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`)

// resources returns the path of the objects of a kind. namespace is empty for kinds without namespaces.
func resources(kind, namespace string) (string, error) {
	switch kind {
	case "Namespace":
		return "/api/v1/namespaces/", nil
	case "ServiceAccount":
		return "/api/v1/namespaces/" + namespace + "/serviceaccounts/", nil
	case "Role":
		return "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles/", nil
	case "RoleBinding":
		return "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/rolebindings/", nil
	case "ClusterRole":
		return "/apis/rbac.authorization.k8s.io/v1/clusterroles/", nil
	case "ClusterRoleBinding":
		return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/", nil
	case "ValidatingAdmissionPolicy":
		return "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/", nil
	case "ValidatingAdmissionPolicyBinding":
		return "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/", nil
	}
	return "", fmt.Errorf("unknown kind %q", kind)
}

// Apply creates or updates the objects of all users by server-side apply. The client has a cluster administrator's certificate, and server is the URL of
// the API server. releaseRepositories are the repositories of the region's release images.
func Apply(ctx context.Context, client *http.Client, server string, releaseRepositories []string) error {
	for i, repository := range releaseRepositories {
		if !repositoryPattern.MatchString(repository) {
			return fmt.Errorf("releaseRepositories[%d]: %q is not REGISTRY/REPOSITORY", i, repository)
		}
	}
	all := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		all[path], err = files.ReadFile(path)
		return err
	})
	if err != nil {
		return err
	}
	policy := "objects/" + Agent + "/" + policyFile
	if all[policy], err = addRendered(all[policy], strings.Join(releaseRepositories, ",")); err != nil {
		return err
	}
	for user, annotation := range map[string]string{Forwarder: hostedreport.LogAnnotation, Egress: hostedreport.EgressAnnotation} {
		replacer := strings.NewReplacer(Prober, user, hostedreport.InsideAnnotation, annotation)
		for _, name := range []string{policyFile, "4-policybinding.yaml"} {
			all["local/"+user+"/"+name] = []byte(replacer.Replace(string(all["objects/"+Prober+"/"+name])))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if err := apply(ctx, client, server, all[path]); err != nil {
			return fmt.Errorf("applying %s: %w", path, err)
		}
	}
	return nil
}

func apply(ctx context.Context, client *http.Client, server string, text []byte) error {
	var object struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return err
	}
	path, err := resources(object.Kind, object.Metadata.Namespace)
	if err != nil {
		return err
	}
	url := server + path + object.Metadata.Name + "?fieldManager=managementaccess&force=true&fieldValidation=Strict"
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/apply-patch+yaml")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
	return nil
}
