package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Endpoints are the addresses of a region's services and the files with the credentials for them. Paths are absolute.
// Endpoints contain no secret, but some of the files do.
type Endpoints struct {
	Location string `json:"location"`
	// ARM is the URL of the front door, CAFile the certificate authority that verifies it.
	ARM    string `json:"arm"`
	CAFile string `json:"caFile"`
	// CredentialsFile contains the credentials with which a client gets tokens from the front door.
	CredentialsFile string `json:"credentialsFile"`
	TenantID        string `json:"tenantId"`
	// Admin is the URL of admin's API. EngineersFile contains the credentials with which SREs get tokens for
	// AdminAudience.
	Admin         string `json:"admin"`
	EngineersFile string `json:"engineersFile"`
	AdminAudience string `json:"adminAudience"`
	// AdminIssuer is the issuer with which SREs sign in to get tokens for AdminAudience, and AdminClientID the application of hcpctl. They are empty if
	// the issuer has no pages for people.
	AdminIssuer   string `json:"adminIssuer,omitempty"`
	AdminClientID string `json:"adminClientId,omitempty"`
	// Portal is the URL of the SRE portal.
	Portal string `json:"portal"`
	// GatewayAccess is the URL of the session gateway, which accepts the tokens of engineers for AdminAudience.
	GatewayAccess string `json:"gatewayAccess"`
	// GatewayEgress and GatewayEgressConnect are the addresses of the egress gateway for clients that name the host in TLS and with CONNECT. They
	// are empty if the region has no egress gateway.
	GatewayEgress        string `json:"gatewayEgress,omitempty"`
	GatewayEgressConnect string `json:"gatewayEgressConnect,omitempty"`
	// Kubeconfigs are the administrators' kubeconfigs of the management clusters, by name. Kubectl is the program to
	// use with them, which `make kubectl` builds.
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	// EngineerKubeconfigs are those of the engineer who is on call. What the engineer does with them is audited with the engineer's name.
	EngineerKubeconfigs map[string]string `json:"engineerKubeconfigs"`
	Kubectl             string            `json:"kubectl"`
	// ServiceCluster is the administrator's kubeconfig of the service cluster; a region of processes has none.
	ServiceCluster string `json:"serviceCluster,omitempty"`
	// Prometheus and Alertmanager are the URLs of their user interfaces and APIs; empty if the region has none.
	Prometheus   string `json:"prometheus,omitempty"`
	Alertmanager string `json:"alertmanager,omitempty"`
	// Traces is the URL of the trace store. A region has one if Config.With contains WithTraces.
	Traces string `json:"traces,omitempty"`
	// Proxy is the URL of the HTTP proxy through which clients reach the API servers of hosted clusters, if their names do not resolve on
	// the machine. It is empty in a region of processes.
	Proxy string `json:"proxy,omitempty"`

	// The following fields are for tests that access the internal services.

	Cosmos string `json:"cosmos"`
	// Workloads are the identities in Azure, by service.
	Workloads      map[string]Workload `json:"workloads"`
	MaestroREST    string              `json:"maestroREST"`
	MaestroGRPC    string              `json:"maestroGRPC"`
	ClusterService string              `json:"clusterService"`
	Frontend       string              `json:"frontend"`
	// AzureCredentials is the file with the credentials of Cluster Service in Azure.
	AzureCredentials string `json:"azureCredentials"`
	// ARMCredentialsFile contains the credentials with which ARM gets its tokens for the frontend. ProviderAudience is
	// their audience.
	ARMCredentialsFile string `json:"armCredentialsFile"`
	ProviderAudience   string `json:"providerAudience"`
	MQTT               string `json:"mqtt"`
	// MQTTFaults and Cosmos accept injected faults if Config.Faults is set.
	MQTTFaults string `json:"mqttFaults"`
	// Azure is the URL of the Azure emulator, and UpdateGraph that of the update graph.
	Azure       string `json:"azure"`
	UpdateGraph string `json:"updateGraph"`
	// Etcd is the URL of etcd, and EtcdTLS the files of its administrator.
	Etcd    string          `json:"etcd"`
	EtcdTLS kubeapi.EtcdTLS `json:"etcdTLS"`
	// DatabaseURLFiles are the files with the URLs of the databases for their services, by database. AdministratorURLFile contains
	// that of the PostgreSQL server for its superuser.
	DatabaseURLFiles     map[string]string `json:"databaseURLFiles"`
	AdministratorURLFile string            `json:"administratorURLFile"`
	// Identities are the folders of the SPIFFE identities, by workload.
	Identities map[string]string `json:"identities"`
	// Ops are the addresses of /readyz and /metrics, by process.
	Ops map[string]string `json:"ops"`
}

// Endpoints returns the endpoints of the region.
func (r *Region) Endpoints() Endpoints {
	e := Endpoints{
		Location:             r.state.record.Location,
		ARM:                  "https://" + r.address(frontDoorPort),
		CAFile:               r.state.path("ca", mesh.CAFile),
		CredentialsFile:      r.credentialsFile(),
		TenantID:             tenantID,
		Admin:                "https://" + r.address(adminPort),
		EngineersFile:        r.engineersFile(),
		AdminAudience:        adminAudience,
		AdminIssuer:          "https://" + r.address(frontDoorPort) + "/" + providerTenantID + "/v2.0",
		AdminClientID:        adminClientID,
		GatewayAccess:        "https://" + r.address(gatewayAccessPort),
		GatewayEgress:        r.address(gatewayEgressPort),
		GatewayEgressConnect: r.address(gatewayEgressConnect),
		Portal:               r.portalURL(),
		Kubeconfigs:          map[string]string{},
		EngineerKubeconfigs:  map[string]string{},
		Kubectl:              r.thirdParty("bin", "kubectl"),
		Cosmos:               "https://" + r.address(cosmosPort),
		Workloads:            map[string]Workload{},
		MaestroREST:          "https://" + r.address(maestroRESTPort),
		MaestroGRPC:          r.address(maestroGRPCPort),
		ClusterService:       r.address(clusterServicePort),
		Frontend:             r.address(frontendPort),
		AzureCredentials:     r.serviceCredentialsFile(),
		ARMCredentialsFile:   r.armCredentialsFile(),
		ProviderAudience:     providerAudience,
		MQTT:                 r.address(mqttPort),
		MQTTFaults:           "http://" + r.address(mqttFaults),
		Azure:                "https://" + r.address(azurePort),
		UpdateGraph:          "https://" + r.address(updateGraphPort),
		Etcd:                 r.etcdURL(),
		EtcdTLS:              r.etcdAdministrator(),
		DatabaseURLFiles: map[string]string{
			ClusterServiceDatabase: r.databaseURLFile(ClusterServiceDatabase),
			MaestroDatabase:        r.databaseURLFile(MaestroDatabase),
		},
		AdministratorURLFile: r.administratorURLFile(),
		Identities:           map[string]string{},
		Ops:                  map[string]string{},
	}
	if r.config.with(WithObservability) {
		e.Prometheus, e.Alertmanager = "http://"+r.address(prometheusPort), "http://"+r.address(alertmanagerPort)
	}
	e.Traces = "http://" + r.address(tracesPort)
	for _, name := range r.state.record.ManagementClusters {
		e.Kubeconfigs[name] = r.state.path("management", name, "admin.kubeconfig")
		e.EngineerKubeconfigs[name] = r.state.path("management", name, engineerClient+".kubeconfig")
	}
	for _, p := range r.config.processes(r.state.record.ManagementClusters) {
		if port, ok := p.ports["ops"]; ok && p.name != "etcd" {
			e.Ops[p.name] = r.address(port)
		}
	}
	for name := range r.applications() {
		e.Workloads[name] = r.workload(name)
	}
	for _, identity := range r.identities() {
		e.Identities[identity.name] = r.identityDir(identity.name)
	}
	return e
}

// Describe returns the endpoints of the region in stateDir, whether it runs or not. For a folder without a region it
// returns control.ErrNotRunning.
func Describe(stateDir string) (Endpoints, error) {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return Endpoints{}, err
	}
	s := &state{dir: dir}
	written, err := readEndpoints(s.path(endpointsFile))
	if err != nil {
		return Endpoints{}, err
	}
	if written != nil {
		return *written, nil
	}
	data, err := os.ReadFile(s.path("region.json"))
	if os.IsNotExist(err) {
		return Endpoints{}, fmt.Errorf("%w in %s: it has no region yet; start one with `hcpctl region up`", control.ErrNotRunning, dir)
	}
	if err == nil {
		err = json.Unmarshal(data, &s.record)
	}
	if err != nil {
		return Endpoints{}, fmt.Errorf("reading region.json of the region in %s: %w", dir, err)
	}
	r := &Region{state: s, config: Config{With: s.record.With}}
	for i, name := range s.record.ManagementClusters {
		r.clusters = append(r.clusters, &managementCluster{name: name, index: i})
	}
	return r.Endpoints(), nil
}

// endpointsFile is the file in the state folder with the endpoints of a region that this package does not run, such as one on Kubernetes.
const endpointsFile = "endpoints.json"

// WriteEndpoints stores the endpoints of a region that another program runs, so that Describe returns them.
func WriteEndpoints(stateDir string, e Endpoints) error {
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(stateDir, endpointsFile), data, 0o600)
}

// RemoveEndpoints removes the file of WriteEndpoints.
func RemoveEndpoints(stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, endpointsFile))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// readEndpoints reads the file of WriteEndpoints; without a file it returns nil.
func readEndpoints(path string) (*Endpoints, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var e Endpoints
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints of the region: %w", err)
	}
	return &e, nil
}

// ProfilingSocket returns the Unix socket of a process of the region in stateDir, which exists if Config.Profiling is set.
func ProfilingSocket(stateDir, process string) string {
	return filepath.Join(stateDir, "profiling", process+".sock")
}

// LogDir returns the folder with one NAME.log per process of the region in stateDir.
func LogDir(stateDir string) string { return filepath.Join(stateDir, "logs") }
