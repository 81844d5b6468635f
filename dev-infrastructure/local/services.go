package local

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// without reports whether the region does not start a process.
func (c *Config) without(name string) bool { return slices.Contains(c.Without, name) }

// specs returns all processes of the region, in the order in which they are displayed.
func (r *Region) specs() []supervisor.Spec {
	specs := []supervisor.Spec{r.postgres(), r.etcd(), r.cosmosEmulator(), r.eventGridEmulator(), r.azureEmulator(), r.updateGraph()}
	for _, m := range r.clusters {
		specs = append(specs, r.kubeAPIServer(m), r.managementControllers(m), r.egressProxy(m), r.hypershiftRuntime(m), r.maestroAgent(m), r.managementAudit(m), r.monitorInside(m))
		specs = slices.Concat(specs, r.logForwarders(m), r.gatewayTunnels(m))
	}
	specs = append(specs, r.maestroServer(), r.clusterService(), r.backend(), r.frontend(), r.monitor(), r.gatewayAccess(), r.gatewayEgress(), r.armFrontDoor())
	if !r.config.without("arm-frontdoor") { // it issues the tokens of admin's clients
		specs = append(specs, r.admin())
	}
	return r.leaveOut(slices.Concat(specs, r.traceStore(), r.observability()))
}

// ours returns the common part of the specs of our programs. The parent-death signal of the supervisor covers them;
// they do not need --die-with-parent.
func (r *Region) ours(name, program string, arguments ...string) supervisor.Spec {
	if r.config.Profiling {
		arguments = append([]string{"--profiling-socket=" + ProfilingSocket(r.state.dir, name)}, arguments...)
	}
	ops := r.ops(name)
	return supervisor.Spec{
		Name:    name,
		Program: r.program(program),
		Args:    append([]string{"--ops-listen=" + ops, "--log-level=" + r.config.LogLevel}, arguments...),
		Env:     r.raceEnvironment(),
		Needs:   r.process(name).needs,
		Ports:   r.ports(name),
		Ready:   httpReady("http://"+ops+"/readyz", nil),
		Live:    httpLive("http://"+ops+"/healthz", nil),
	}
}

func (r *Region) cosmosEmulator() supervisor.Spec {
	identity := r.identityDir("cosmos-emulator")
	spec := r.ours("cosmos-emulator", "cosmos-emulator",
		"--listen="+r.address(cosmosPort),
		"--data-dir="+r.state.path("cosmos"),
		"--account-file="+r.cosmosAccountFile(),
		"--authority=https://"+r.address(frontDoorPort),
		"--authority-ca-file="+r.state.path("ca", mesh.CAFile),
		"--tls-cert="+filepath.Join(identity, mesh.CertificateFile),
		"--tls-key="+filepath.Join(identity, mesh.KeyFile),
		"--region="+r.config.Location,
	)
	if r.config.Faults {
		spec.Args = append(spec.Args, "--enable-faults")
	}
	spec.DataDir = r.state.path("cosmos")
	spec.Prepare = r.writeCosmosAccount
	return spec
}

// cosmosFlags returns the flags with which a service connects to Cosmos DB. It authenticates with its workload identity.
func (r *Region) cosmosFlags() []string {
	return []string{
		"--cosmos-endpoint=https://" + r.address(cosmosPort),
		"--cosmos-ca-file=" + r.state.path("ca", mesh.CAFile),
	}
}

func (r *Region) hypershiftRuntime(m *managementCluster) supervisor.Spec {
	first := firstHostedPort + m.index*hostedPortsPerCluster
	spec := r.ours(m.hypershiftName(), "hypershift-runtime",
		"--kubeconfig="+m.kubeconfig("hypershift"),
		"--crd-dir="+r.thirdParty("crds", "hypershift"),
		"--fidelity="+string(r.config.Fidelity),
		"--time-scale="+strconv.FormatFloat(*r.config.TimeScale, 'g', -1, 64),
		"--kube-apiserver="+r.thirdParty("bin", "kube-apiserver"),
		"--etcd-servers="+r.etcdURL(),
		"--etcd-authority-dir="+r.etcdAuthorityDir(),
		"--state-dir="+r.state.path("hosted", m.name),
		fmt.Sprintf("--hosted-ports=%d-%d", first, first+hostedPortsPerCluster-1),
	)
	spec.Args = append(append(spec.Args, r.releaseCatalog()...), r.egressFlags(m)...)
	return spec
}

func (r *Region) eventGridEmulator() supervisor.Spec {
	spec := r.ours("eventgrid-emulator", "eventgrid-emulator",
		"--listen="+r.address(mqttPort),
		"--identity-dir="+r.identityDir("eventgrid-emulator"),
	)
	spec.Args = append(spec.Args, r.auditFlags("eventgrid-emulator")...)
	if r.config.Faults {
		spec.Args = append(spec.Args, "--enable-faults", "--faults-listen="+r.address(mqttFaults))
	}
	return spec
}

// releaseCatalog returns the flag for programs that read the region's releases.
func (r *Region) releaseCatalog() []string {
	if r.config.ReleaseCatalog == "" {
		return nil
	}
	return []string{"--release-catalog=" + r.config.ReleaseCatalog}
}

func (r *Region) updateGraph() supervisor.Spec {
	identity := r.identityDir("update-graph")
	return r.ours("update-graph", "update-graph", append(r.releaseCatalog(),
		"--listen="+r.address(updateGraphPort),
		"--tls-cert="+filepath.Join(identity, mesh.CertificateFile),
		"--tls-key="+filepath.Join(identity, mesh.KeyFile),
	)...)
}

// updateGraphFlags returns the flags with which Cluster Service connects to the update graph. It uses its last copy
// while the update graph is unavailable, and so does not need to wait for it.
func (r *Region) updateGraphFlags() []string {
	if r.config.without("update-graph") {
		return nil
	}
	return []string{"--update-graph-url=" + r.updateGraphURL(), "--update-graph-ca-file=" + r.state.path("ca", mesh.CAFile)}
}

func (r *Region) updateGraphURL() string {
	return "https://" + r.address(updateGraphPort) + "/api/upgrades_info"
}

func (r *Region) maestroServer() supervisor.Spec {
	identity := r.identityDir("maestro-server")
	spec := r.ours("maestro-server", "maestro-server",
		"--listen-grpc="+r.address(maestroGRPCPort),
		"--listen-rest="+r.address(maestroRESTPort),
		"--identity-dir="+identity,
		"--mqtt-address="+r.address(mqttPort),
		"--mqtt-identity-dir="+identity,
	)
	spec.Args = slices.Concat(spec.Args, r.databaseFlags(MaestroDatabase), r.tracing(), r.auditFlags("maestro-server"))
	spec.Settle = r.registerConsumers
	return spec
}

func (r *Region) maestroAgent(m *managementCluster) supervisor.Spec {
	spec := r.ours(m.agentName(), "maestro-agent",
		"--kubeconfig="+m.kubeconfig("maestro-agent"),
		"--consumer-name="+m.name,
		"--mqtt-address="+r.address(mqttPort),
		"--mqtt-identity-dir="+r.identityDir(m.agentName()),
		"--secrets-key-file="+r.agentKeyFile(m.name),
		"--install-crds="+r.thirdParty("crds", "work"),
	)
	spec.Args = append(spec.Args, r.tracing()...)
	return spec
}

func (r *Region) clusterService() supervisor.Spec {
	spec := r.ours("cluster-service", "cluster-service",
		"--listen="+r.address(clusterServicePort),
		"--identity-dir="+r.identityDir("cluster-service"),
		"--intent-keys-url="+r.intentKeysURL(),
		"--secrets-key-file="+r.signingKeysFile(),
		"--reseal-again-after="+r.resealAgainAfter().String(),
		"--maestro-grpc-address="+r.address(maestroGRPCPort),
		"--shards-file="+r.shardsFile(),
		"--shard-keys-dir="+r.shardKeysDir(),
		"--region="+r.config.Location,
		"--oidc-issuer-base="+r.issuerBase(),
		// Hosted API servers listen on loopback, where their DNS names do not resolve.
		"--api-url-source=endpoint",
		"--components-after="+r.componentsAfter().String(),
		// Each key takes tens of milliseconds of processor time while the region starts.
		"--signing-keys-ahead=1",
		"--developer",
	)
	spec.Args = slices.Concat(spec.Args, r.databaseFlags(ClusterServiceDatabase), r.tracing(), r.auditFlags("cluster-service"), r.releaseCatalog(), r.updateGraphFlags(), r.signatureFlags())
	if r.hasAzure() {
		spec.Args = append(spec.Args, "--config="+r.clusterServiceConfigFile())
	}
	spec.Prepare = r.prepareClusterService
	return spec
}

// componentsAfter returns the time after which Cluster Service reads the components of a rollout: the production value
// at the region's time scale, within bounds that limit the number of messages.
func (r *Region) componentsAfter() time.Duration {
	const scaled, minimum, maximum = 10 * time.Minute, time.Second, 15 * time.Second
	return min(max(time.Duration(float64(scaled)**r.config.TimeScale), minimum), maximum)
}

// resealAgainAfter returns the pause before Cluster Service searches a second time for signing keys that a former key sealed: the default
// at the region's time scale. All processes read the same file, so the pause must only exceed a transaction.
func (r *Region) resealAgainAfter() time.Duration {
	const standard, minimum = 10 * time.Minute, 10 * time.Second
	return min(max(time.Duration(float64(standard)**r.config.TimeScale), minimum), standard)
}

func (r *Region) backend() supervisor.Spec {
	spec := r.ours("backend", "backend", slices.Concat(r.cosmosFlags(), r.tracing(), r.auditFlags("backend"), []string{
		"--identity-dir=" + r.identityDir("backend"),
		"--cluster-service-address=" + r.address(clusterServicePort),
		"--intent-keys-url=" + r.intentKeysURL(),
		"--replica=local",
		"--allow-loopback-notifications",
	})...)
	return r.withWorkload(spec, spec.Name)
}

func (r *Region) monitor() supervisor.Spec {
	spec := r.ours("monitor", "monitor", append(r.cosmosFlags(),
		"--identity-dir="+r.identityDir("monitor"),
		"--cluster-service-address="+r.address(clusterServicePort),
		"--replica=local",
		// Hosted API servers listen on loopback.
		"--egress-addresses=127.0.0.1",
		"--anchors="+r.address(frontendPort)+","+r.address(clusterServicePort),
	)...)
	return r.withWorkload(spec, spec.Name)
}

// gatewayAccess is the session gateway. Engineers use the tokens that they have for admin.
func (r *Region) gatewayAccess() supervisor.Spec {
	spec := r.ours("gateway-access", "gateway-access", append(append(r.cosmosFlags(), r.auditFlags("gateway-access")...),
		"--listen="+r.address(gatewayAccessPort),
		"--identity-dir="+r.identityDir("gateway-access"),
		"--cluster-service-address="+r.address(clusterServicePort),
		"--key-file="+r.gatewayKeyFile(),
		"--recording-dir="+r.recordingQueueDir(),
		"--recording-sink-dir="+r.recordingSinkDir(),
		"--recording-key-file="+r.recordingPublicKeyFile(),
		"--authentication=token",
		"--authentication-issuer=https://"+r.address(frontDoorPort)+"/"+providerTenantID+"/v2.0",
		"--authentication-audience="+adminAudience,
		"--authentication-client-ids="+adminClientID,
		"--authentication-ca-file="+r.state.path("ca", mesh.CAFile),
		"--tunnel-agents="+r.tunnelAgents(),
	)...)
	return r.withWorkload(spec, spec.Name)
}

// gatewayEgress is the egress gateway. It has no certificate, because it authenticates at Cosmos DB with a token, and identifies clients by the
// PROXY headers that Azure writes in production.
func (r *Region) gatewayEgress() supervisor.Spec {
	spec := r.ours("gateway-egress", "gateway-egress", append(r.cosmosFlags(),
		"--intent-keys-file="+r.intentPublicKeyFile(),
		"--trust-domain="+r.config.TrustDomain,
		"--listen="+r.address(gatewayEgressPort),
		"--listen-connect="+r.address(gatewayEgressConnect),
	)...)
	return r.withWorkload(spec, spec.Name)
}

func (r *Region) frontend() supervisor.Spec {
	spec := r.ours("frontend", "frontend", append(slices.Concat(r.cosmosFlags(), r.tracing(), r.auditFlags("frontend")),
		"--listen="+r.address(frontendPort),
		"--identity-dir="+r.identityDir("frontend"),
		"--cluster-service-address="+r.address(clusterServicePort),
		"--location="+r.config.Location,
		// A load test creates all its clusters in one subscription.
		"--clusters-per-subscription=5000",
		"--skip-token-key-file="+r.skipTokenKeyFile(),
		"--credential-key-file="+r.credentialKeyFile(),
		"--allow-loopback-notifications",
		"--allow-loopback-issuers",
	)...)
	spec.Args = append(spec.Args, r.authentication()...)
	return r.withWorkload(spec, spec.Name)
}

// authentication returns the flags that make the frontend require ARM's own tokens, which the front door issues. A
// region without a front door has no issuer.
func (r *Region) authentication() []string {
	if r.config.without("arm-frontdoor") {
		return []string{"--authentication=off"}
	}
	return []string{
		"--authentication=token",
		"--authentication-issuer=https://" + r.address(frontDoorPort) + "/" + providerTenantID + "/v2.0",
		"--authentication-audience=" + providerAudience,
		"--authentication-client-ids=" + armClientID,
		"--authentication-ca-file=" + r.state.path("ca", mesh.CAFile),
	}
}

// armFrontDoor needs no other process: the frontend becomes ready when it has read the keys that the front door
// publishes, and the front door when the frontend accepts connections.
func (r *Region) armFrontDoor() supervisor.Spec {
	return r.ours("arm-frontdoor", "arm-frontdoor",
		"--listen="+r.address(frontDoorPort),
		"--identity-dir="+r.identityDir("arm-frontdoor"),
		"--frontend-address="+r.address(frontendPort),
		"--state-dir="+r.state.path("front-door"),
		"--clients-file="+r.credentialsFile(),
		"--service-clients-file="+r.serviceCredentialsFile(),
		"--workload-clients-file="+r.workloadClientsFile(),
		"--workload-issuer="+workloadIssuer,
		"--workload-issuer-key-file="+r.workloadPublicKeyFile(),
		"--store-audience="+storeAudience,
		"--own-client-file="+r.armCredentialsFile(),
		"--provider-audience="+providerAudience,
		"--engineers-file="+r.engineersFile(),
		"--admin-audience="+adminAudience,
		"--ticket-token-file="+r.ticketTokenFile(),
		"--closed-tickets-file="+r.closedTicketsFile(),
		"--location="+r.config.Location,
	)
}

// leaveOut removes the processes that a developer runs, and the dependencies on them.
func (r *Region) leaveOut(specs []supervisor.Spec) []supervisor.Spec {
	var kept []supervisor.Spec
	for _, spec := range specs {
		if r.config.without(spec.Name) {
			continue
		}
		spec.Needs = slices.DeleteFunc(slices.Clone(spec.Needs), r.config.without)
		kept = append(kept, spec)
	}
	return kept
}
