package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// tokenSource gets tokens of Entra ID with the secret of a client.
type tokenSource struct {
	authority, tenant, clientID, secretFile, audience string
	credential                                        *azidentity.ClientSecretCredential
}

func (s *tokenSource) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.authority, "authority", "", "URL of Entra ID")
	flags.StringVar(&s.tenant, "tenant", "", "tenant of the client")
	flags.StringVar(&s.clientID, "client-id", "", "ID of the client")
	flags.StringVar(&s.secretFile, "client-secret-file", "", "file with the secret of the client")
	flags.StringVar(&s.audience, "audience", "", "audience of the tokens")
}

// open reads the secret. roots are the authorities of Entra ID's certificate.
func (s *tokenSource) open(roots *x509.CertPool) error {
	secret, err := os.ReadFile(s.secretFile)
	if err != nil {
		return err
	}
	options := &azidentity.ClientSecretCredentialOptions{DisableInstanceDiscovery: true}
	options.Cloud.ActiveDirectoryAuthorityHost = s.authority + "/"
	options.Transport = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	s.credential, err = azidentity.NewClientSecretCredential(s.tenant, s.clientID, strings.TrimSpace(string(secret)), options)
	return err
}

// header returns the header of a JSON request with a token.
func (s *tokenSource) header(ctx context.Context) (http.Header, error) {
	token, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{s.audience + "/.default"}})
	if err != nil {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + token.Token}, "Content-Type": {"application/json"}}, nil
}

// readRoots reads the authorities in a PEM file.
func readRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return roots, nil
}
