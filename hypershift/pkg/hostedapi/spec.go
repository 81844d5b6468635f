// Package hostedapi runs the API servers of hosted control planes as processes on this machine: real kube-apiservers
// that share one etcd, each under a key prefix and with a PKI of its own, each on a loopback port that it keeps for
// life. A Supervisor owns every such process: it starts what Ensure asks for, restarts what dies, tells its owner when
// a state changes, and removes a control plane with everything it stored. No process outlives the Supervisor, however
// it ends.
package hostedapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/auditlog"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
)

// Spec is what a hosted API server is asked to be.
type Spec struct {
	// Name is the control plane's namespace: unique on the management cluster, and the last part of the etcd prefix.
	Name string
	// Port is the one it had before, zero for none. It is given up only if something else listens on it.
	Port int32
	// Issuer is the issuer of service-account tokens, a URL.
	Issuer string
	// ServiceCIDRs are the service networks, one per address family.
	ServiceCIDRs []string
	// MaxRequests and MaxMutatingRequests bound the requests in flight; zero leaves the API server's default.
	MaxRequests, MaxMutatingRequests int

	// Serving is the certificate it serves; Named are served instead to clients that ask for one of the names.
	Serving pki.Pair
	Named   map[string]pki.Pair
	// ServingCA verifies Serving, for the supervisor's own probes with Admin as its client certificate.
	ServingCA []byte
	Admin     pki.Pair
	// ClientCA is the bundle that client certificates are verified with. It may change while the server runs.
	ClientCA []byte
	// Authentication is the structured authentication configuration, which may change while the server runs. Nil leaves
	// what it has.
	Authentication []byte
	// ServiceAccountKey and ServiceAccountPublicKey sign and verify service-account tokens.
	ServiceAccountKey, ServiceAccountPublicKey []byte
}

const (
	auditPolicyName    = "audit-policy.yaml"
	authenticationName = "authentication.json"
	// noAuthentication takes nobody's tokens but the cluster's own. With the file there from the start, issuers can come and
	// go without a restart.
	noAuthentication = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[]}`
)

// Prefix is the etcd key prefix of a control plane, without a trailing slash.
func Prefix(name string) string { return "/hosted/" + name }

// State is how a hosted API server stands.
type State struct {
	// Ready: it answers /readyz.
	Ready bool
	// Settled is false while the first start since this process began is under way; a server that is not ready but also
	// not settled may well have been ready until its supervisor was restarted.
	Settled bool
	// Port is where it listens on 127.0.0.1.
	Port int32
	// PID is its process, zero for none.
	PID int
	// Restarts counts the times it was started again after it died.
	Restarts int
	// Message says why it is not ready.
	Message string
}

func (s *Spec) validate() error {
	switch {
	case s.Name == "":
		return errors.New("a hosted API server needs a name")
	case len(s.Serving.Cert) == 0 || len(s.Admin.Cert) == 0 || len(s.ClientCA) == 0 || len(s.ServiceAccountKey) == 0:
		return errors.New("a hosted API server needs its certificates")
	}
	return nil
}

// files are what the process reads, by name in its folder. kube-apiserver follows changes to all but the service
// account's keys.
func (s *Spec) files() map[string][]byte {
	files := map[string][]byte{
		"serving.crt":   s.Serving.Cert,
		"serving.key":   s.Serving.Key,
		"client-ca.crt": s.ClientCA,
		"sa.key":        s.ServiceAccountKey,
		"sa.pub":        s.ServiceAccountPublicKey,
	}
	files[auditPolicyName] = []byte(auditlog.Policy)
	files[authenticationName] = s.Authentication
	if s.Authentication == nil {
		files[authenticationName] = []byte(noAuthentication)
	}
	for i, name := range slices.Sorted(maps.Keys(s.Named)) {
		prefix := "named-" + strconv.Itoa(i)
		files[prefix+".crt"], files[prefix+".key"] = s.Named[name].Cert, s.Named[name].Key
	}
	return files
}

// needsRestart reports whether a running server has to be started again to become next.
func (s *Spec) needsRestart(next *Spec) bool {
	return s.Issuer != next.Issuer ||
		!slices.Equal(s.ServiceCIDRs, next.ServiceCIDRs) ||
		s.MaxRequests != next.MaxRequests || s.MaxMutatingRequests != next.MaxMutatingRequests ||
		!slices.Equal(slices.Sorted(maps.Keys(s.Named)), slices.Sorted(maps.Keys(next.Named))) ||
		!bytes.Equal(s.ServiceAccountKey, next.ServiceAccountKey)
}

// probeTLS is how the supervisor asks the server itself.
func (s *Spec) probeTLS() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ServingCA) {
		return nil, errors.New("the serving CA holds no certificate")
	}
	admin, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, nil
}
