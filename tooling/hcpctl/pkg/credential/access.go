package credential

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Access is the break-glass access of an SRE to one cluster: the private key, the request for it, and the current certificate, which
// lasts minutes and is replaced while the access lasts. It is stored in a file next to the kubeconfig.
type Access struct {
	// Cluster is the UID of the cluster.
	Cluster string        `json:"cluster"`
	Level   adminv1.Level `json:"level"`
	// Request is the certificate signing request, Key the private key and Certificate the current certificate, all PEM.
	Request     string `json:"request"`
	Key         string `json:"key"`
	Certificate string `json:"certificate"`
	// Credential is the UID of the current credential, and Expires the end of its certificate.
	Credential string    `json:"credential"`
	Expires    time.Time `json:"expires"`
	// Server is the URL of the API server, and Authority the PEM certificates with which it is verified. Earlier releases stored neither.
	Server    string `json:"server,omitempty"`
	Authority string `json:"authority,omitempty"`
	// Proxy is the URL of the HTTP proxy through which clients reach Server; empty uses that of the environment.
	Proxy string `json:"proxy,omitempty"`
}

// ReadAccess reads the file of an access.
func ReadAccess(file string) (*Access, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the access: %w", err)
	}
	access := &Access{}
	if err := json.Unmarshal(content, access); err != nil {
		// The decoder's error may contain a part of the file.
		return nil, fmt.Errorf("reading the access: %s is not a file of `hcpctl break-glass request`", file)
	}
	return access, nil
}

// Encode returns the content of the file of an access.
func (a *Access) Encode() ([]byte, error) { return json.Marshal(a) }

// Lock waits until no other process uses the file of an access. The caller must call unlock.
func Lock(file string) (unlock func(), err error) {
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the access: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the access: %w", err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// execAPI is the version of the protocol between Kubernetes' clients and credential plugins.
const execAPI = "client.authentication.k8s.io/v1"

// refreshBefore is the part of a certificate's lifetime in which a long-running client asks for another one.
const refreshBefore = time.Minute

// ExecCredential returns the response of a credential plugin.
func (a *Access) ExecCredential() ([]byte, error) {
	return ExecCredential(a.Expires.Add(-refreshBefore), map[string]any{"clientCertificateData": a.Certificate, "clientKeyData": a.Key})
}

// ExecCredential returns the response of a credential plugin with a status, whose credential expires at a time.
func ExecCredential(expires time.Time, status map[string]any) ([]byte, error) {
	status["expirationTimestamp"] = expires.UTC().Format(time.RFC3339)
	return json.Marshal(map[string]any{"apiVersion": execAPI, "kind": "ExecCredential", "status": status})
}

// PluginKubeconfig returns a kubeconfig for an API server with its certificate authority, PEM, whose clients get their certificate
// from a command.
func PluginKubeconfig(cluster, server string, authority []byte, command string, arguments []string) ([]byte, error) {
	const user = "sre"
	if !filepath.IsAbs(command) {
		return nil, fmt.Errorf("the command %q of the kubeconfig is not an absolute path", command)
	}
	// Bytes are base64 in JSON and YAML.
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": cluster,
		"clusters": []any{map[string]any{"name": cluster, "cluster": map[string]any{"server": server, "certificate-authority-data": authority}}},
		"contexts": []any{map[string]any{"name": cluster, "context": map[string]any{"cluster": cluster, "user": user}}},
		"users": []any{map[string]any{"name": user, "user": map[string]any{"exec": map[string]any{
			"apiVersion": execAPI, "command": command, "args": arguments, "interactiveMode": "Never"}}}},
	})
}
