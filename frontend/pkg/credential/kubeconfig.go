package credential

import (
	"encoding/base64"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Access is what a kubeconfig is made of.
type Access struct {
	// Cluster names the cluster in it.
	Cluster string
	// APIURL is where the hosted API server is.
	APIURL string
	// ServingCA is the PEM by which its certificate is judged, Certificate the client's, PEM.
	ServingCA   string
	Certificate string
	// Key is the client's private key, PEM; empty when only the client has it.
	Key []byte
}

// user names the administrator in a kubeconfig.
const user = "customer-break-glass"

// The kubeconfig, as client-go's clientcmd/api/v1 defines it; []byte is base64 there.
type kubeconfig struct {
	APIVersion     string         `yaml:"apiVersion"`
	Kind           string         `yaml:"kind"`
	Clusters       []namedCluster `yaml:"clusters"`
	Contexts       []namedContext `yaml:"contexts"`
	CurrentContext string         `yaml:"current-context"`
	Users          []namedUser    `yaml:"users"`
}

type namedCluster struct {
	Name    string  `yaml:"name"`
	Cluster cluster `yaml:"cluster"`
}

type cluster struct {
	Server                   string `yaml:"server"`
	CertificateAuthorityData string `yaml:"certificate-authority-data"`
}

type namedContext struct {
	Name    string      `yaml:"name"`
	Context contextInfo `yaml:"context"`
}

type contextInfo struct {
	Cluster string `yaml:"cluster"`
	User    string `yaml:"user"`
}

type namedUser struct {
	Name string   `yaml:"name"`
	User authInfo `yaml:"user"`
}

type authInfo struct {
	ClientCertificateData string `yaml:"client-certificate-data"`
	ClientKeyData         string `yaml:"client-key-data,omitempty"`
}

// Kubeconfig makes the kubeconfig of an access.
func Kubeconfig(a Access) (string, error) {
	context := user + "@" + a.Cluster
	config := kubeconfig{
		APIVersion: "v1",
		Kind:       "Config",
		Clusters: []namedCluster{{a.Cluster, cluster{
			Server: a.APIURL, CertificateAuthorityData: encode([]byte(a.ServingCA)),
		}}},
		Contexts:       []namedContext{{context, contextInfo{Cluster: a.Cluster, User: user}}},
		CurrentContext: context,
		Users: []namedUser{{user, authInfo{
			ClientCertificateData: encode([]byte(a.Certificate)), ClientKeyData: encode(a.Key),
		}}},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return string(text), nil
}

func encode(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
