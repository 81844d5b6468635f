package tofu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// Scope is a folder of templates with a state of its own.
type Scope string

// The scopes, from the outermost. A scope reads the outputs of those before it, except that a management cluster does not read those of the
// service cluster.
const (
	Global            Scope = "global"
	Region            Scope = "region"
	ServiceCluster    Scope = "service-cluster"
	ManagementCluster Scope = "management-cluster"
)

// Scopes returns all scopes, from the outermost.
func Scopes() []Scope { return []Scope{Global, Region, ServiceCluster, ManagementCluster} }

// ParseScope returns the scope with a name.
func ParseScope(name string) (Scope, error) {
	if !slices.Contains(Scopes(), Scope(name)) {
		return "", fmt.Errorf("scope %q does not exist: use one of %v", name, Scopes())
	}
	return Scope(name), nil
}

// Outer returns the scopes whose outputs a scope reads.
func (s Scope) Outer() []Scope {
	switch s {
	case Region:
		return []Scope{Global}
	case ServiceCluster, ManagementCluster:
		return []Scope{Global, Region}
	}
	return nil
}

// Account is a Kubernetes service account.
type Account struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Container is a container of Cosmos DB.
type Container struct {
	PartitionKey string `json:"partitionKey"`
	DefaultTTL   int32  `json:"defaultTtl"`
}

// CosmosRole is what a service may do in a container, or in the account if the container is empty.
type CosmosRole struct {
	Service   string `json:"service"`
	Container string `json:"container"`
	// Scope is relative to the account.
	Scope       string   `json:"scope"`
	DataActions []string `json:"dataActions"`
}

// Permission lets the clients of a workload publish or subscribe to the topics of a topic space.
type Permission struct {
	Client     string `json:"client"`
	TopicSpace string `json:"topicSpace"`
	Permission string `json:"permission"`
}

// Tables are the requirements of the programs.
type Tables struct {
	// CosmosConsistency is the default consistency level of the account.
	CosmosConsistency string               `json:"cosmosConsistency"`
	CosmosDatabase    string               `json:"cosmosDatabase"`
	CosmosContainers  map[string]Container `json:"cosmosContainers"`
	CosmosRoles       []CosmosRole         `json:"cosmosRoles"`
	// TopicSpaces lists topic templates by name of the topic space.
	TopicSpaces      map[string][]string   `json:"topicSpaces"`
	TopicPermissions map[string]Permission `json:"topicPermissions"`
	// ServiceAccounts are those of the services and of the gateways, MigrationAccounts and ProvisionAccounts those of the commands that prepare the databases.
	ServiceAccounts   map[string]Account `json:"serviceAccounts"`
	MigrationAccounts map[string]Account `json:"migrationAccounts"`
	ProvisionAccounts map[string]Account `json:"provisionAccounts"`
	// SecretReads are the secrets that the charts of a region or stamp mount, with the identity that reads each of them. Only the scopes region and
	// management-cluster have them.
	SecretReads []values.SecretRead `json:"secretReads"`
}

// Variables are the values of a scope's variables: the rendered configuration of a region or stamp, and what the programs of the region require.
// Containers and roles of Cosmos DB come from internal/database, the permissions of MQTT clients and the service accounts from internal/mesh, and the
// secrets of each identity from the values of the charts, so that templates repeat nothing.
type Variables struct {
	Config any    `json:"config"`
	Tables Tables `json:"tables"`
	// Outer holds the outputs of the outer scopes, by the name that templates use.
	Outer map[string]json.RawMessage `json:"outer,omitempty"`
	// MQTTAuthorities holds the certificates of the authorities of MQTT clients, as PEM. Only the scope region has it.
	MQTTAuthorities map[string]string `json:"mqtt_authorities,omitempty"`
	AllowLoss       bool              `json:"allow_loss,omitempty"`
}

// NewVariables returns the variables of a scope for a target, without the outputs of other scopes. A management cluster needs a stamp as target,
// all other scopes a region; the global scope accepts every region of its environment.
func NewVariables(configuration *deployment.Configuration, scope Scope, target layer.Target) (*Variables, error) {
	level := layer.Region
	if scope == ManagementCluster {
		level = layer.Stamp
	}
	if target.Level() != level {
		return nil, fmt.Errorf("%s is not a target of the scope %s: use CLOUD/ENVIRONMENT/REGION, with /STAMP only for %s", target, scope, ManagementCluster)
	}
	rendered, err := configuration.Render(target)
	if err != nil {
		return nil, err
	}
	source := rendered.Get("maestro", "sourceId")
	if source == nil {
		return nil, fmt.Errorf("%s: maestro.sourceId is not set", target)
	}
	tables, err := NewTables(source.Plain().(string))
	if err != nil {
		return nil, err
	}
	if scope == Region || scope == ManagementCluster { // these have vaults
		if tables.SecretReads, err = secretReads(values.Target{Name: target.String(), Schema: configuration.Schema, Configuration: rendered}); err != nil {
			return nil, err
		}
	}
	return &Variables{Config: rendered.Plain(), Tables: tables}, nil
}

// secretReads returns the secrets that the charts of a region or stamp mount. It returns an error if one of them is in another vault than that
// of the region or stamp, because the scope of the target assigns roles only there.
func secretReads(t values.Target) ([]values.SecretRead, error) {
	key := []string{"keyVaults", "service"}
	if t.Configuration.Get("managementCluster") != nil {
		key = []string{"managementCluster", "keyVault"}
	}
	reads, err := values.SecretReads(t)
	if err != nil {
		return nil, err
	}
	for _, read := range reads {
		if vault := t.Configuration.Get(key...); vault == nil || vault.Kind != document.Scalar || vault.Value != read.Vault {
			return nil, fmt.Errorf("%s: %s mounts the secret %s of the vault %s, and its charts may mount only secrets of %s", t.Name, read.Identity, read.Secret, read.Vault, strings.Join(key, "."))
		}
	}
	return reads, nil
}

// Name returns the name of a scope's outputs in the templates of inner scopes.
func (s Scope) Name() string {
	return map[Scope]string{Global: "global", Region: "region", ServiceCluster: "serviceCluster", ManagementCluster: "managementCluster"}[s]
}

// NewTables returns the requirements of the programs. source is Maestro's name of the server, a part of topics.
func NewTables(source string) (Tables, error) {
	t := Tables{CosmosConsistency: string(database.ConsistencyLevel), CosmosDatabase: database.DatabaseName, CosmosContainers: map[string]Container{}, TopicSpaces: map[string][]string{}, TopicPermissions: map[string]Permission{},
		ServiceAccounts: map[string]Account{}, MigrationAccounts: databaseAccounts("migration"), ProvisionAccounts: databaseAccounts("provision")}
	for _, container := range database.Containers() {
		t.CosmosContainers[container.ID] = Container{PartitionKey: container.PartitionKeyDefinition.Paths[0], DefaultTTL: *container.DefaultTimeToLive}
	}
	for _, peer := range []mesh.Peer{mesh.Frontend, mesh.Backend, mesh.Admin, mesh.GatewayAccess, mesh.GatewayEgress, mesh.Monitor, mesh.ClusterService, mesh.MaestroServer, mesh.MaestroAgent, mesh.GatewayTunnel} {
		t.ServiceAccounts[string(peer)] = account(peer)
	}
	for _, role := range database.Roles() {
		for _, grant := range role.Grants {
			t.CosmosRoles = append(t.CosmosRoles, CosmosRole{role.Service, grant.Container, grant.Scope(), grant.DataActions})
		}
	}
	for _, gateway := range []string{"arm", "admin", "tunnels"} {
		t.ServiceAccounts["ingress-"+gateway] = Account{"ingress", gateway}
	}
	for _, rule := range mesh.Rules() {
		if rule.Server != mesh.EventGridEmulator || rule.Protocol != mesh.MQTT {
			continue
		}
		for _, grant := range rule.Clients {
			if err := t.permit(source, rule.Method, grant); err != nil {
				return Tables{}, err
			}
		}
	}
	return t, nil
}

// permit adds the permission of a rule of the authorization table, and its topic space.
func (t *Tables) permit(source, method string, grant mesh.Grant) error {
	action, channel, _ := strings.Cut(method, " ")
	permission, ok := map[string]string{mesh.Publish: "Publisher", mesh.Subscribe: "Subscriber"}[action]
	topic, known := map[string]func(source, consumer string) string{maestroapi.ChannelSourceEvents: maestroapi.SourceEventsTopic, maestroapi.ChannelAgentEvents: maestroapi.AgentEventsTopic}[channel]
	if !ok || !known {
		return fmt.Errorf("the rule %q of the broker has no permission in Event Grid", method)
	}
	space, consumer := channel+"-of-all", "+"
	if grant.Condition.OwnConsumer {
		space, consumer = channel+"-of-one", "${client.attributes.consumer}"
	}
	t.TopicSpaces[space] = []string{topic(source, consumer)}
	t.TopicPermissions[fmt.Sprintf("%s-%s-%s", grant.Client, action, channel)] = Permission{string(grant.Client), space, permission}
	return nil
}

// databaseAccounts returns the service accounts of a command that prepares a database, by name of the database. The chart of the service
// has them.
func databaseAccounts(command string) map[string]Account {
	accounts := map[string]Account{}
	for database, service := range map[string]mesh.Peer{"cluster-service": mesh.ClusterService, "maestro": mesh.MaestroServer} {
		accounts[database] = Account{Namespace: string(service), Name: string(service) + "-" + command}
	}
	return accounts
}

// account returns the service account of a workload.
func account(peer mesh.Peer) Account { return Account{string(peer), string(peer)} }

// SetOuter adds the outputs of the outer scopes. It returns an error that names the outputs that are missing.
func (v *Variables) SetOuter(scope Scope, outputs map[Scope]json.RawMessage) error {
	v.Outer = map[string]json.RawMessage{}
	for _, outer := range scope.Outer() {
		if outputs[outer] == nil {
			return fmt.Errorf("the scope %s needs the outputs of %s, which has not been applied; there are outputs of %v", scope, outer, slices.Sorted(maps.Keys(outputs)))
		}
		v.Outer[outer.Name()] = outputs[outer]
	}
	return nil
}
