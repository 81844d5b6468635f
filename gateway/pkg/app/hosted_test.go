package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// hosted is the API server of the tests that need a real one.
var hosted kubeapitest.Shared

// hostedRegion is a region whose cluster is a real API server with an audit log. Its gateways serve TLS, because kubectl sends tokens only
// over TLS.
type hostedRegion struct {
	*region
	kube  *kubeapitest.Cluster
	admin *kubernetes.Clientset
	mesh  *meshtest.Region
}

// newHostedRegion returns a region. The authority of the API server signs the certificates of sessions, and RBAC grants readers the rights
// that they have in local regions.
func newHostedRegion(t *testing.T) *hostedRegion {
	t.Helper()
	nightly.Only(t)
	if _, err := kubeapitest.Programs(); err != nil {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	r := &hostedRegion{region: newRegion(t), kube: hosted.Cluster(t), mesh: meshtest.New(t)}
	dir := filepath.Dir(r.kube.Kubeconfig())
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, authority.CertificateFile), filepath.Join(dir, authority.KeyFile)))(t)
	authorities := must.Get(os.ReadFile(filepath.Join(dir, authority.CertificateFile)))(t)
	r.signer, r.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	r.endpoint, r.authorities = r.kube.Server, string(authorities)
	r.listen = r.mesh.Identity(mesh.GatewayAccess).PublicListener
	config := must.Get(clientcmd.BuildConfigFromFlags("", r.kube.Kubeconfig()))(t)
	config.QPS = -1
	r.admin = must.Get(kubernetes.NewForConfig(config))(t)
	r.bindReaders()
	return r
}

// bindReaders grants readers their rights, as the local runtime does.
func (r *hostedRegion) bindReaders() {
	r.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}}}
	for _, rule := range readrules.HostedCluster() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{rule.Group}, Resources: rule.Resources, Verbs: readrules.Verbs()})
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: adminv1.LevelReader.Organization()}}}
	_, roleErr := r.admin.RbacV1().ClusterRoles().Create(r.t.Context(), role, metav1.CreateOptions{})
	_, bindErr := r.admin.RbacV1().ClusterRoleBindings().Create(r.t.Context(), binding, metav1.CreateOptions{})
	for _, err := range []error{roleErr, bindErr} {
		if err != nil && !apierrors.IsAlreadyExists(err) { // by an earlier test
			r.t.Fatal(err)
		}
	}
}

// kubectl returns a command that sends the requests of an engineer through a gateway. Its user has no other configuration.
func (r *hostedRegion) kubectl(gateway, session, token string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(r.t.Context(), filepath.Join(r.kube.Programs, "kubectl"), append([]string{"--server", gateway + "/sessions/" + session + "/kas", "--token", token,
		"--certificate-authority", filepath.Join(r.mesh.Identity(mesh.GatewayAccess).Dir(), mesh.CAFile)}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull, "HOME="+r.t.TempDir())
	return command
}

// event holds the fields of an event of audit.k8s.io/v1 that tests use.
type event struct {
	AuditID    string
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
}

// kind returns the resource as audit records name it.
func (e *event) kind() string {
	if e.ObjectRef == nil {
		return "path"
	}
	kind := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		kind += "." + e.ObjectRef.APIGroup
	}
	if e.ObjectRef.Subresource != "" {
		kind += "/" + e.ObjectRef.Subresource
	}
	return kind
}

// events returns the requests of an engineer in the audit log of the API server, by audit ID.
func (r *hostedRegion) events(engineer string) (map[string]event, error) {
	files, err := filepath.Glob(filepath.Join(r.kube.AuditLogs, "*.log"))
	if err != nil || !slices.Contains(files, filepath.Join(r.kube.AuditLogs, managementaudit.LogName)) {
		return nil, fmt.Errorf("the audit log does not exist: %w", errors.Join(err, os.ErrNotExist))
	}
	events := map[string]event{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(content) {
			var e event
			if !bytes.HasSuffix(line, []byte("\n")) {
				continue // it is being written
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, err
			}
			if strings.HasSuffix(e.User.Username, ":"+engineer) {
				events[e.AuditID] = e
			}
		}
	}
	return events, nil
}
