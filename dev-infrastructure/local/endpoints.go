package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Endpoints are where a region can be reached and with what. Paths are absolute; nothing in here is a secret, but some
// of the files that it names hold one.
type Endpoints struct {
	Location string `json:"location"`
	// ARM is the front door's URL, and CAFile what its certificate is verified with.
	ARM    string `json:"arm"`
	CAFile string `json:"caFile"`
	// CredentialsFile is what a client gets tokens at the front door with.
	CredentialsFile string `json:"credentialsFile"`
	TenantID        string `json:"tenantId"`
	// Admin is the URL of the SREs' API, EngineersFile what they get tokens for AdminAudience with.
	Admin         string `json:"admin"`
	EngineersFile string `json:"engineersFile"`
	AdminAudience string `json:"adminAudience"`
	// Kubeconfigs of the management clusters' administrators, by the clusters' names, and the program to use them with.
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	Kubectl     string            `json:"kubectl"`

	// The rest is for tests that look behind the front door.

	Cosmos         string `json:"cosmos"`
	CosmosKeyFile  string `json:"cosmosKeyFile"`
	MaestroREST    string `json:"maestroREST"`
	MaestroGRPC    string `json:"maestroGRPC"`
	ClusterService string `json:"clusterService"`
	Frontend       string `json:"frontend"`
	// ARMCredentialsFile is what ARM gets its tokens for the frontend with, whose audience is ProviderAudience.
	ARMCredentialsFile string `json:"armCredentialsFile"`
	ProviderAudience   string `json:"providerAudience"`
	MQTT               string `json:"mqtt"`
	// MQTTFaults and Cosmos take injected faults if the region was configured so.
	MQTTFaults string `json:"mqttFaults"`
	// Azure is where the emulator of Azure is.
	Azure string `json:"azure"`
	Etcd  string `json:"etcd"`
	// DatabaseURLFiles hold the URLs of the databases, by their names.
	DatabaseURLFiles map[string]string `json:"databaseURLFiles"`
	// Identities are the folders of the SPIFFE identities, by workload.
	Identities map[string]string `json:"identities"`
	// Ops are the addresses of /readyz and /metrics, by process.
	Ops map[string]string `json:"ops"`
}

// Endpoints of the region.
func (r *Region) Endpoints() Endpoints {
	e := Endpoints{
		Location:           r.state.record.Location,
		ARM:                "https://" + r.address(frontDoorPort),
		CAFile:             r.state.path("ca", mesh.CAFile),
		CredentialsFile:    r.credentialsFile(),
		TenantID:           tenantID,
		Admin:              "https://" + r.address(adminPort),
		EngineersFile:      r.engineersFile(),
		AdminAudience:      adminAudience,
		Kubeconfigs:        map[string]string{},
		Kubectl:            r.thirdParty("bin", "kubectl"),
		Cosmos:             "https://" + r.address(cosmosPort),
		CosmosKeyFile:      r.cosmosKeyFile(),
		MaestroREST:        "https://" + r.address(maestroRESTPort),
		MaestroGRPC:        r.address(maestroGRPCPort),
		ClusterService:     r.address(clusterServicePort),
		Frontend:           r.address(frontendPort),
		ARMCredentialsFile: r.armCredentialsFile(),
		ProviderAudience:   providerAudience,
		MQTT:               r.address(mqttPort),
		MQTTFaults:         "http://" + r.address(mqttFaults),
		Azure:              "https://" + r.address(azurePort),
		Etcd:               "http://" + r.address(etcdPort),
		DatabaseURLFiles: map[string]string{
			ClusterServiceDatabase: r.databaseURLFile(ClusterServiceDatabase),
			MaestroDatabase:        r.databaseURLFile(MaestroDatabase),
		},
		Identities: map[string]string{},
		Ops: map[string]string{
			"arm-frontdoor":      r.address(frontDoorOps),
			"frontend":           r.address(frontendOps),
			"backend":            r.address(backendOps),
			"admin":              r.address(adminOps),
			"cluster-service":    r.address(clusterServiceOps),
			"maestro-server":     r.address(maestroServerOps),
			"azure-emulator":     r.address(azureOps),
			"cosmos-emulator":    r.address(cosmosOps),
			"eventgrid-emulator": r.address(mqttOps),
			"update-graph":       r.address(updateGraphOps),
		},
	}
	for i, name := range r.state.record.ManagementClusters {
		e.Kubeconfigs[name] = r.state.path("management", name, "admin.kubeconfig")
		e.Ops[name+"-maestro-agent"] = r.address(management(i, maestroAgentOps))
		e.Ops[name+"-hypershift-runtime"] = r.address(management(i, hypershiftOps))
	}
	for _, identity := range r.identities() {
		e.Identities[identity.name] = r.identityDir(identity.name)
	}
	return e
}

// Describe reads the endpoints of the region in stateDir, whether it runs or not. A folder without a region gives
// control.ErrNotRunning.
func Describe(stateDir string) (Endpoints, error) {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return Endpoints{}, err
	}
	s := &state{dir: dir}
	data, err := os.ReadFile(s.path("region.json"))
	if os.IsNotExist(err) {
		return Endpoints{}, fmt.Errorf("%w in %s: there is nothing yet; start it with `hcpctl region up`", control.ErrNotRunning, dir)
	}
	if err == nil {
		err = json.Unmarshal(data, &s.record)
	}
	if err != nil {
		return Endpoints{}, fmt.Errorf("reading what the region in %s is: %w", dir, err)
	}
	r := &Region{state: s}
	for i, name := range s.record.ManagementClusters {
		r.clusters = append(r.clusters, &managementCluster{name: name, index: i})
	}
	return r.Endpoints(), nil
}

// LogDir is where the region in stateDir keeps one NAME.log per process.
func LogDir(stateDir string) string { return filepath.Join(stateDir, "logs") }
