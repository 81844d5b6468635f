package local

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"sigs.k8s.io/yaml"
)

const (
	// adminAudience is the audience of SREs' tokens.
	adminAudience = "https://admin.hcpmesh.local"
	// adminClientID is the application ID of hcpctl, with which SREs call admin, and hcpctlObjectID its principal.
	adminClientID  = "d6f3a1f2-6f5b-4b35-9f0e-1c64a1f5c3aa"
	hcpctlObjectID = "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a0a"
	// portalClientID is the application ID of the SRE portal, with which SREs call admin, and portalObjectID its principal.
	portalClientID = "d6f3a1f2-6f5b-4b35-9f0e-1c64a1f5c3ab"
	portalObjectID = "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a08"
)

// portalURL returns the URL of the SRE portal.
func (r *Region) portalURL() string { return "https://" + r.address(portalPort) }

// ticketValidatorPath is the path of the ARM front door that stands in for a ticket system.
const ticketValidatorPath = "/tickets/validate"

// engineers are the SREs of a local region, each with a group that has the role. Two of them have the role break-glass, so that
// one can approve what the other requests. The last one has a group without a role.
var engineers = []struct{ role, name, objectID, group string }{
	{"break-glass", "oncall@hcpmesh.local", "7c0f6c1e-8c44-4b8e-9d0a-52f8d8a1e001", "0b6d9a52-5a3f-4f0e-8f61-6d1f3b7c0001"},
	{"break-glass", "approver@hcpmesh.local", "7c0f6c1e-8c44-4b8e-9d0a-52f8d8a1e005", "0b6d9a52-5a3f-4f0e-8f61-6d1f3b7c0005"},
	{"operator", "operator@hcpmesh.local", "7c0f6c1e-8c44-4b8e-9d0a-52f8d8a1e002", "0b6d9a52-5a3f-4f0e-8f61-6d1f3b7c0002"},
	{"reader", "reader@hcpmesh.local", "7c0f6c1e-8c44-4b8e-9d0a-52f8d8a1e003", "0b6d9a52-5a3f-4f0e-8f61-6d1f3b7c0003"},
	{"", "guest@hcpmesh.local", "7c0f6c1e-8c44-4b8e-9d0a-52f8d8a1e004", "0b6d9a52-5a3f-4f0e-8f61-6d1f3b7c0004"},
}

func (r *Region) engineersFile() string { return r.state.path("front-door", "engineers.json") }

func (r *Region) rolesFile() string { return r.state.path("front-door", "roles.yaml") }

// accessPolicy is the access policy of a local region. One engineer can do everything alone, except break-glass access to all
// clusters, which another one must approve. The ARM front door stands in for the ticket system.
const accessPolicy = `# What elevations need in admin.
requestLifetime: 4h
classes:
  operate: {ticket: required, approval: never, approverRole: operator, maxDuration: 8h}
  recover: {ticket: validated, approval: never, approverRole: break-glass, maxDuration: 8h}
  break-glass: {ticket: validated, approval: region, approverRole: break-glass, maxDuration: 8h}
`

// ticketTokenFile returns the file of the token with which admin asks the ticket validator.
func (r *Region) ticketTokenFile() string { return r.state.path("secrets", "ticket-validator.token") }

// closedTicketsFile returns the file in which a developer lists closed tickets. The region does not create it.
func (r *Region) closedTicketsFile() string { return r.state.path("front-door", "closed-tickets") }

// createTicketToken creates the token unless it exists.
func (r *Region) createTicketToken() error {
	if _, err := os.Stat(r.ticketTokenFile()); !os.IsNotExist(err) {
		return err
	}
	return replaceFile(r.ticketTokenFile(), []byte(rand.Text()), 0o600)
}

func (r *Region) accessPolicyFile() string { return r.state.path("front-door", "access-policy.yaml") }

// createEngineers creates the credentials of the region's SREs that do not exist, and writes the roles of their groups and the
// access policy.
func (r *Region) createEngineers() error {
	if err := r.createTicketToken(); err != nil {
		return err
	}
	if err := replaceFile(r.accessPolicyFile(), []byte(accessPolicy), 0o644); err != nil {
		return err
	}
	groups := map[string][]string{}
	var clients []Credentials
	existing, err := os.ReadFile(r.engineersFile())
	switch {
	case err == nil:
		if err := json.Unmarshal(existing, &clients); err != nil {
			return fmt.Errorf("reading %s: %w", r.engineersFile(), err)
		}
	case !os.IsNotExist(err):
		return err
	}
	for _, engineer := range engineers {
		if engineer.role != "" {
			groups[engineer.role] = append(groups[engineer.role], engineer.group)
		}
		if slices.ContainsFunc(clients, func(c Credentials) bool { return c.ObjectID == engineer.objectID }) {
			continue
		}
		clients = append(clients, Credentials{
			TenantID: providerTenantID, ClientID: adminClientID, ClientSecret: rand.Text(), ObjectID: engineer.objectID, Name: engineer.name,
			Groups: []string{engineer.group},
		})
	}
	roles, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		return err
	}
	if err := replaceFile(r.rolesFile(), roles, 0o644); err != nil {
		return err
	}
	data, err := json.MarshalIndent(clients, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(r.engineersFile(), data, 0o600)
}

// admin needs only its store, so that it is available when other services are not.
func (r *Region) admin() supervisor.Spec {
	spec := r.ours("admin", "admin", append(append(r.cosmosFlags(), r.auditFlags("admin")...),
		"--listen="+r.address(adminPort),
		"--identity-dir="+r.identityDir("admin"),
		"--cluster-service-address="+r.address(clusterServicePort),
		"--maestro-url=https://"+r.address(maestroRESTPort),
		"--roles-file="+r.rolesFile(),
		"--access-policy-file="+r.accessPolicyFile(),
		"--ticket-validator-url=https://"+r.address(frontDoorPort)+ticketValidatorPath,
		"--ticket-validator-token-file="+r.ticketTokenFile(),
		"--ticket-validator-ca-file="+r.state.path("ca", mesh.CAFile),
		"--intent-key-file="+r.intentKeyFile(),
		"--audit-keys-dir="+AuditFoldersOf(r.state.dir).Keys,
		"--authentication=token",
		"--authentication-issuer=https://"+r.address(frontDoorPort)+"/"+providerTenantID+"/v2.0",
		"--authentication-audience="+adminAudience,
		"--authentication-client-ids="+adminClientID+","+portalClientID,
		"--authentication-ca-file="+r.state.path("ca", mesh.CAFile),
		"--portal-listen="+r.address(portalPort),
		"--portal-url="+r.portalURL(),
		"--portal-client-id="+portalClientID,
		"--portal-region="+r.state.record.Location,
	)...)
	if r.config.with(WithObservability) {
		spec.Args = append(spec.Args, "--prometheus-url=http://"+r.address(prometheusPort), "--alertmanager-url=http://"+r.address(alertmanagerPort))
	}
	if !r.config.without("gateway-access") {
		spec.Args = append(spec.Args, "--gateway-url=https://"+r.address(gatewayAccessPort), "--gateway-key-file="+r.gatewayPublicKeyFile(),
			"--recording-sink-dir="+r.recordingSinkDir(), "--recording-private-key-file="+r.recordingKeyFile())
	}
	return r.withComponents(r.withWorkload(spec, spec.Name))
}

// intentKeysURL returns the URL of the keys with which admin signs what engineers ask for.
func (r *Region) intentKeysURL() string {
	return "https://" + r.address(adminPort) + adminv1.IntentKeysPath
}
