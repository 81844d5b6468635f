package credential

import (
	"encoding/base64"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Access holds the values of a kubeconfig.
type Access struct {
	// Cluster is the name of the cluster.
	Cluster string
	// APIURL is the URL of the hosted API server.
	APIURL string
	// ServingCA is the certificate authority of the API server, Certificate the client's certificate, both PEM.
	ServingCA   string
	Certificate string
	// Key is the client's private key in PEM; empty if only the client has it.
	Key []byte
}

// user is the name of the administrator in a kubeconfig.
const user = "customer-break-glass"

// The types of a kubeconfig as in client-go's clientcmd/api/v1. Byte slices there are base64.
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

// Kubeconfig returns the kubeconfig for an access.
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
