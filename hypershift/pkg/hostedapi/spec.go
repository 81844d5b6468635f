// Package hostedapi runs the API servers of hosted control planes as processes on this machine. They are real
// kube-apiservers that share one etcd. Each has its own key prefix, its own PKI, and a loopback port that stays the
// same for its lifetime.
//
// A Supervisor owns all these processes: it starts servers that Ensure requests, restarts servers that terminate,
// notifies its owner of changes of state, and removes a control plane with all its data. No process outlives the
// Supervisor, even if the Supervisor is killed.
//
// The servers write audit logs. The package reads from them which break-glass credentials are used in a hosted cluster,
// and UseReporter reports each used certificate by its fingerprint on the HostedCluster.
package hostedapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/stubkubelet"
)

// Spec is the desired configuration of a hosted API server.
type Spec struct {
	// Name is the control plane's namespace. It is unique on the management cluster, and the last part of the etcd
	// prefix.
	Name string
	// Port is the previous port, zero for none. The server gets another port only if this one is in use.
	Port int32
	// Issuer is the issuer of service-account tokens, a URL.
	Issuer string
	// ServiceCIDRs are the service networks, one per address family.
	ServiceCIDRs []string
	// MaxRequests and MaxMutatingRequests bound the requests in flight; zero leaves the API server's default.
	MaxRequests, MaxMutatingRequests int

	// Serving is the serving certificate. Named holds the certificates for clients that request one of these names
	// (SNI).
	Serving pki.Pair
	Named   map[string]pki.Pair
	// ServingCA verifies Serving in the supervisor's own probes, which use Admin as client certificate.
	ServingCA []byte
	Admin     pki.Pair
	// ClientCA is the bundle that verifies client certificates. It may change while the server runs.
	ClientCA []byte
	// Authentication is the structured authentication configuration, which may change while the server runs. Nil keeps
	// the current configuration.
	Authentication []byte
	// ServiceAccountKey and ServiceAccountPublicKey sign and verify service-account tokens.
	ServiceAccountKey, ServiceAccountPublicKey []byte
	// EncryptionKeys encrypt Secrets and ConfigMaps in etcd. They may change while the server runs: it loads the others within a minute.
	// A key must not be removed while etcd has data that it encrypted.
	EncryptionKeys kubeapi.EncryptionKeys
	// KubeletClient is the certificate with which the server connects to kubelets, and KubeletAuthority verifies theirs. Without the authority
	// it gets neither, and nodes have no address of the type that it uses.
	KubeletClient    pki.Pair
	KubeletAuthority []byte
	// RestartDate is an opaque value. The server restarts when it changes.
	RestartDate string
	// EtcdVolume is the volume of an etcd that belongs to the control plane alone. Where control planes share an etcd, it is not used.
	EtcdVolume Volume
}

// Volume is a volume of the management cluster.
type Volume struct {
	// Class is the name of its StorageClass; empty for that of the cluster. Size is a quantity, for example 8Gi.
	Class, Size string
}

const (
	auditPolicyName    = "audit-policy.yaml"
	authenticationName = "authentication.json"
	encryptionName     = "encryption.json"
	// kubeletAuthorityName is the authority of kubelets' serving certificates.
	kubeletAuthorityName = "kubelet-ca.crt"
	// emptyAuthentication accepts no tokens but the cluster's own. The file exists from the start, so that issuers can
	// be added and removed without a restart.
	emptyAuthentication = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[]}`
)

// Prefix returns the etcd key prefix of a control plane, without a trailing slash.
func Prefix(name string) string { return kubeapi.HostedPrefix(name) }

// State is the state of a hosted API server.
type State struct {
	// Ready is true if the server answered /readyz with 200 and has neither terminated nor failed its probes since.
	Ready bool
	// Settled is false during a planned start: the first start of this supervisor, or a restart because of a new
	// configuration. A server that is not ready and not settled may have been ready before and is expected to be ready
	// soon, so it should not be reported as an outage.
	Settled bool
	// Host and Port are its address. The host of a process is 127.0.0.1.
	Host string
	Port int32
	// PID is its process ID, zero for none.
	PID int
	// Restarts is the number of restarts after it terminated unexpectedly.
	Restarts int
	// Message is the reason why it is not ready.
	Message string
}

// Validate returns an error if the specification lacks what a server needs.
func (s *Spec) Validate() error {
	switch {
	case s.Name == "":
		return errors.New("hosted API server: the name is missing")
	case len(s.Serving.Cert) == 0 || len(s.Admin.Cert) == 0 || len(s.ClientCA) == 0 || len(s.ServiceAccountKey) == 0:
		return fmt.Errorf("hosted API server %s: a certificate or key is missing", s.Name)
	}
	if len(s.KubeletAuthority) > 0 && len(s.KubeletClient.Cert) == 0 {
		return fmt.Errorf("hosted API server %s: the certificate for kubelets is missing", s.Name)
	}
	if err := s.EncryptionKeys.Validate(); err != nil {
		return fmt.Errorf("hosted API server %s: %w", s.Name, err)
	}
	return nil
}

// Files returns the files that the server reads, by name in their folder. kube-apiserver follows changes of all files
// but the service-account keys.
func (s *Spec) Files() map[string][]byte {
	files := map[string][]byte{
		"serving.crt":   s.Serving.Cert,
		"serving.key":   s.Serving.Key,
		"client-ca.crt": s.ClientCA,
		"sa.key":        s.ServiceAccountKey,
		"sa.pub":        s.ServiceAccountPublicKey,
	}
	files[encryptionName], _ = kubeapi.EncryptionConfiguration(s.EncryptionKeys) // validate has checked the keys
	files[auditPolicyName] = []byte(auditPolicy)
	files[authenticationName] = s.Authentication
	if s.Authentication == nil {
		files[authenticationName] = []byte(emptyAuthentication)
	}
	if s.KubeletAuthority != nil {
		files[kubeletAuthorityName] = s.KubeletAuthority
		files["kubelet-client.crt"], files["kubelet-client.key"] = s.KubeletClient.Cert, s.KubeletClient.Key
	}
	for i, name := range slices.Sorted(maps.Keys(s.Named)) {
		prefix := "named-" + strconv.Itoa(i)
		files[prefix+".crt"], files[prefix+".key"] = s.Named[name].Cert, s.Named[name].Key
	}
	return files
}

// Arguments returns the arguments of kube-apiserver that follow from the specification, for a server with the Files in a folder. data is a
// folder to which it writes. Not among them are those for its address and for etcd's.
func (s *Spec) Arguments(files, data string) []string {
	file := func(name string) string { return path.Join(files, name) }
	arguments := []string{
		"--etcd-prefix=" + Prefix(s.Name),
		"--cert-dir=" + data,
		"--tls-cert-file=" + file("serving.crt"),
		"--tls-private-key-file=" + file("serving.key"),
		"--client-ca-file=" + file("client-ca.crt"),
		"--authentication-config=" + file(authenticationName),
		"--service-account-issuer=" + s.Issuer,
		"--service-account-key-file=" + file("sa.pub"),
		"--service-account-signing-key-file=" + file("sa.key"),
		"--service-cluster-ip-range=" + strings.Join(s.ServiceCIDRs, ","),
		"--authorization-mode=RBAC",
		"--encryption-provider-config=" + file(encryptionName), "--encryption-provider-config-automatic-reload",
		"--audit-policy-file=" + file(auditPolicyName),
		"--audit-log-path=" + path.Join(data, auditLogName),
		"--audit-log-maxsize=" + strconv.Itoa(auditLogMegabytes),
		"--audit-log-maxbackup=" + strconv.Itoa(auditLogBackups),
		// Without a controller manager nothing creates service accounts, and their admission plugin would reject every
		// pod.
		"--disable-admission-plugins=ServiceAccount",
		// With one server per control plane, the mechanisms by which several servers find each other only cause load.
		"--endpoint-reconciler-type=none",
		"--feature-gates=APIServerIdentity=false",
		"--profiling=false",
		// The other addresses of simulated nodes do not exist, or somebody else has them.
		"--kubelet-preferred-address-types=" + string(stubkubelet.AddressType),
	}
	if s.KubeletAuthority != nil {
		arguments = append(arguments, "--kubelet-certificate-authority="+file(kubeletAuthorityName),
			"--kubelet-client-certificate="+file("kubelet-client.crt"), "--kubelet-client-key="+file("kubelet-client.key"))
	}
	if s.MaxRequests > 0 {
		arguments = append(arguments, "--max-requests-inflight="+strconv.Itoa(s.MaxRequests),
			"--max-mutating-requests-inflight="+strconv.Itoa(s.MaxMutatingRequests))
	}
	for i, name := range slices.Sorted(maps.Keys(s.Named)) {
		prefix := file("named-" + strconv.Itoa(i))
		arguments = append(arguments, "--tls-sni-cert-key="+prefix+".crt,"+prefix+".key:"+name)
	}
	return arguments
}

// needsRestart reports whether a running server has to restart to apply next.
func (s *Spec) needsRestart(next *Spec) bool {
	return s.Issuer != next.Issuer ||
		!slices.Equal(s.ServiceCIDRs, next.ServiceCIDRs) ||
		s.MaxRequests != next.MaxRequests || s.MaxMutatingRequests != next.MaxMutatingRequests ||
		!slices.Equal(slices.Sorted(maps.Keys(s.Named)), slices.Sorted(maps.Keys(next.Named))) ||
		!bytes.Equal(s.ServiceAccountKey, next.ServiceAccountKey) ||
		!bytes.Equal(s.KubeletAuthority, next.KubeletAuthority) ||
		s.RestartDate != next.RestartDate
}

// probeTLSConfig returns the TLS configuration of the supervisor's probes.
func (s *Spec) probeTLSConfig() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ServingCA) {
		return nil, errors.New("the serving CA contains no certificate")
	}
	admin, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, nil
}
