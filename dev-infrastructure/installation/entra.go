package installation

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/tickets"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// APIVersion is the api-version of the resource provider.
const APIVersion = "2026-09-01-preview"

// CustomerTenant is the tenant of the region's customer.
const CustomerTenant = "0c5b6e2c-2f6a-4c57-9d21-7a6f3c1d8e40"

// engineers are the engineers of the region, by name, with their roles. Two have the role break-glass, so that one can approve what the
// other requests.
var engineers = map[string]string{"oncall": "break-glass", "approver": "break-glass", "operator": "operator", "reader": "reader"}

// Entra is Entra ID and Azure Resource Manager, which one program emulates. It issues tokens to the workloads with a chart, in exchange for
// tokens of their service accounts, to the customer, to ARM, to engineers, and to the pipelines that apply the infrastructure.
type Entra struct {
	// Address is the address on loopback.
	Address  string
	services *Outside
	issuer   *token.Issuer
	// team are the engineers, by name.
	team map[string]token.Client
	// pipelines is the principal that applies the infrastructure.
	pipelines token.Client
	// azure is notified of customers' subscriptions; it is nil before StartAzure.
	azure atomic.Pointer[Azure]
}

// URL returns the URL of Azure Resource Manager for clients of the machine.
func (e *Entra) URL() string { return "https://" + e.Address }

// ARMSecretFile returns the file with the secret of ARM, and EngineerSecretFile that with the secret of an engineer.
func (s *Outside) ARMSecretFile() string { return filepath.Join(s.Dir, "arm-secret") }

// EngineerSecretFile returns the file with the secret of an engineer: oncall, approver, operator or reader.
func (s *Outside) EngineerSecretFile(name string) string {
	return filepath.Join(s.Dir, "engineer-"+name)
}

// EngineersFile and CustomerFile return the files with the credentials of all engineers and of the customer, for hcpctl.
func (s *Outside) EngineersFile() string { return filepath.Join(s.Dir, "engineers.json") }

// CustomerFile returns the file with the credentials of the customer.
func (s *Outside) CustomerFile() string { return filepath.Join(s.Dir, "customer.json") }

// EngineerToken returns a token for admin of an engineer: oncall, approver, operator or reader.
func (e *Entra) EngineerToken(name string) (string, error) {
	engineer, ok := e.team[name]
	if !ok {
		return "", fmt.Errorf("unknown engineer %q", name)
	}
	return e.issuer.IssueWithoutSecret(&engineer, engineer.Audiences[0])
}

// clients creates the clients of Entra ID that are no workloads, and the files of their secrets.
func (s *Outside) clients(r *settings) (all []token.Client, arm token.Client, byName map[string]token.Client, err error) {
	tenant := r.text("tenantId")
	forFrontend, forAdmin := r.text("frontend", "authentication", "audience"), r.text("admin", "authentication", "audience")
	client := func(tenant, id, name string, groups, audiences []string) token.Client {
		return token.Client{TenantID: tenant, ClientID: id, Name: name, ClientSecret: rand.Text(), ObjectID: ObjectID(name), Groups: groups, Audiences: audiences}
	}
	arm = client(tenant, r.first("frontend", "authentication", "clientIds"), "Azure Resource Manager", nil, []string{forFrontend})
	customer := client(CustomerTenant, ClientID("developer@local"), "developer@local", nil, nil)
	var team []token.Client
	byName = map[string]token.Client{}
	files := map[string][]byte{s.ARMSecretFile(): []byte(arm.ClientSecret)}
	for name, role := range engineers {
		engineer := client(tenant, r.first("admin", "authentication", "clientIds"), name+"@hcpmesh.local", []string{r.first("admin", "groups", role)}, []string{forAdmin})
		files[s.EngineerSecretFile(name)] = []byte(engineer.ClientSecret)
		team, byName[name] = append(team, engineer), engineer
	}
	slices.SortFunc(team, func(a, b token.Client) int { return strings.Compare(a.Name, b.Name) })
	for file, list := range map[string][]token.Client{s.EngineersFile(): team, s.CustomerFile(): {customer}} {
		if files[file], err = json.MarshalIndent(list, "", "  "); err != nil {
			return nil, token.Client{}, nil, err
		}
	}
	for file, content := range files {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, token.Client{}, nil, err
		}
	}
	return append(team, customer, arm), arm, byName, nil
}

// StartEntra serves Entra ID under its name, and Azure Resource Manager on loopback. ARM forwards requests for the resource provider to the
// gateway of the frontend. The workloads get tokens after AddWorkloads.
func (s *Outside) StartEntra(ctx context.Context) (*Entra, error) {
	r := s.settings()
	clients, arm, team, err := s.clients(r)
	authority, forFrontend, location := r.host("endpoints", "authority"), r.text("frontend", "authentication", "audience"), r.text("region")
	audiences := []string{r.storeAudience(), forFrontend, r.text("admin", "authentication", "audience")}
	if err = errors.Join(r.err, err); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, "entra")
	e := &Entra{services: s, team: team, pipelines: token.Client{TenantID: r.text("tenantId"), ClientID: ClientID("pipelines"), ObjectID: ObjectID("pipelines"), Name: "pipelines"}}
	if e.issuer, err = token.NewIssuer(r.text("endpoints", "authority"), dir, clients, audiences...); err != nil {
		return nil, err
	}
	keyFile, err := s.writeTokenKey("workload-issuer", s.cluster())
	if err != nil {
		return nil, err
	}
	if e.issuer.Workloads, err = token.OpenFederation(kubernetes.TokenIssuer, keyFile); err != nil {
		return nil, err
	}
	listener, err := s.listenTLS(mesh.ARMFrontDoor, authority)
	if err != nil {
		return nil, err
	}
	e.Address = listener.Addr().String()
	door, err := e.frontDoor(&arm, forFrontend, location)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.onClose(func() error {
		door.Close()
		return nil
	})
	s.serve(listener, e.registering(door))
	return e, s.Forward(ctx, authority, "443", e.Address)
}

// writeTokenKey writes the key with which the tokens of a cluster's service accounts are verified, and returns its file. The name has no extension.
func (s *Outside) writeTokenKey(name string, cluster *kubernetes.Cluster) (file string, err error) {
	key, err := cluster.TokenKey()
	if err != nil {
		return "", err
	}
	file = filepath.Join(s.Dir, "entra", name+".pub")
	return file, os.WriteFile(file, key, 0o600)
}

// TrustCluster accepts the tokens of the current cluster's service accounts in place of those of the cluster before Outside.Move, as an apply of the
// infrastructure does with the federated credentials.
func (e *Entra) TrustCluster() error {
	file, err := e.services.writeTokenKey("workload-issuer", e.services.cluster())
	if err != nil {
		return err
	}
	return e.issuer.Workloads.Replace(file)
}

// frontDoor returns Azure Resource Manager.
func (e *Entra) frontDoor(arm *token.Client, audience, location string) (*frontdoor.FrontDoor, error) {
	s := e.services
	dir, err := s.Identity(mesh.ARMFrontDoor)
	if err != nil {
		return nil, err
	}
	identity, err := mesh.LoadIdentity(dir)
	if err != nil {
		return nil, err
	}
	r := s.settings()
	host := r.text("ingress", "arm", "host")
	if r.err != nil {
		return nil, r.err
	}
	gateway, err := s.serveGateway(mesh.Frontend, host, identity.ClientTLS(mesh.Frontend))
	if err != nil {
		return nil, err
	}
	subscriptions, err := frontdoor.OpenDirectory(filepath.Join(s.Dir, "entra", "subscriptions.json"))
	if err != nil {
		return nil, err
	}
	return frontdoor.New(frontdoor.Options{PublicURL: e.URL(), Location: location, APIVersions: []string{APIVersion}, Frontend: gateway, FrontendTLS: &tls.Config{RootCAs: s.roots(), MinVersion: tls.VersionTLS12},
		Tokens: e.issuer, ARMClient: arm, ProviderAudience: audience, Directory: subscriptions, Log: s.log()})
}

// registering gives Cluster Service its role in a subscription before ARM registers the resource provider in it.
func (e *Entra) registering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		segments := strings.Split(strings.Trim(strings.ToLower(request.URL.Path), "/"), "/")
		if azure := e.azure.Load(); azure != nil && request.Method == http.MethodPost && len(segments) == 5 && segments[0] == "subscriptions" && segments[4] == "register" {
			if err := azure.assign(request.Context(), rbac.CustomerRoleID, "/subscriptions/"+segments[1]); err != nil {
				e.services.log().ErrorContext(request.Context(), "assigning Cluster Service its role failed", logkey.Error, err)
			}
		}
		next.ServeHTTP(w, request)
	})
}

// AddWorkloads adds the managed identities of the services, whose IDs are those of the target.
func (e *Entra) AddWorkloads() error {
	r := e.services.settings()
	var clients []token.Client
	for _, w := range workload.All() {
		if w.WithoutAzure || !values.Applies(w, r.target) {
			continue
		}
		clients = append(clients, r.workload(w, r.text(append(slices.Clone(w.Key), "managedIdentity")...)))
	}
	if r.err != nil {
		return r.err
	}
	e.issuer.AddClients(clients...)
	return nil
}

// workload returns the client of a managed identity of the region, as which the service account of a workload authenticates.
func (r *settings) workload(w workload.Workload, identity string) token.Client {
	return token.Client{TenantID: r.text("tenantId"), ClientID: r.target.ClientIDs[identity], ObjectID: r.target.ObjectIDs[identity], Name: identity,
		Workload: fmt.Sprintf("system:serviceaccount:%s:%s", w.Peer, w.Peer)}
}

// ticketTokenFile is the file of the token with which admin calls the ticket system.
func (s *Outside) ticketTokenFile() string { return filepath.Join(s.Dir, "ticket-token") }

// StartTickets serves the ticket system under its name. All tickets of the form INC-42 are open.
func (s *Outside) StartTickets(ctx context.Context) error {
	r := s.settings()
	host, endpoint := r.host("admin", "ticketValidator", "endpoint"), r.text("admin", "ticketValidator", "endpoint")
	if r.err != nil {
		return r.err
	}
	secret, err := s.ticketToken()
	if err != nil {
		return err
	}
	_, err = s.serveHTTPS(ctx, mesh.ARMFrontDoor, &tickets.Server{PublicURL: strings.TrimSuffix(endpoint, "/validate"), Token: secret, ClosedFile: filepath.Join(s.Dir, "closed-tickets")}, host)
	return err
}

// ticketToken returns the token of admin, which it creates unless it exists.
func (s *Outside) ticketToken() (string, error) {
	text, err := os.ReadFile(s.ticketTokenFile())
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = os.WriteFile(s.ticketTokenFile(), text, 0o600)
	}
	return string(text), err
}

// managedIdentity serves tokens of the pipelines on loopback, as App Service does for managed identities. It returns the environment
// variables with which clients find it.
func (e *Entra) managedIdentity() (env []string, err error) {
	header := rand.Text()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.services.serve(listener, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get("X-IDENTITY-HEADER") != header {
			http.Error(w, "the header X-IDENTITY-HEADER is missing or wrong", http.StatusUnauthorized)
			return
		}
		resource := strings.TrimRight(request.URL.Query().Get("resource"), "/")
		issued, err := e.issuer.IssueWithoutSecret(&e.pipelines, resource)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": issued, "expires_on": fmt.Sprint(expiry()), "resource": resource, "token_type": "Bearer"})
	}))
	return []string{"IDENTITY_ENDPOINT=http://" + listener.Addr().String(), "IDENTITY_HEADER=" + header}, nil
}
