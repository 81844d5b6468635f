package installation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/azuretest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// pipelines runs the program rollout for a region.
type pipelines struct {
	*region
	// management is the management cluster of the region.
	management                *region
	program, hcpctl, stateDir string
	// checkout is the checkout whose pipelines run, and kubeconfigs is the folder with the clusters' kubeconfigs.
	checkout, kubeconfigs string
	// openTofu is the folder with OpenTofu and its providers.
	openTofu string
	// azure is the Azure of the region, and proxy connects programs of the machine to admin and to hosted clusters.
	azure *installation.Azure
	proxy *installation.Proxy
	// env is the environment of the program, and flags are those of plans.
	env, flags []string
}

// startStamp starts the management cluster of the region, with the authority and the MQTT broker of the region.
func (r *region) startStamp() *region {
	r.t.Helper()
	management := startManagementCluster(r.ctx, r.t)
	management.authority, management.outside.Authority = r.authority, r.authority
	must.Do(r.t, management.outside.ForwardBroker(r.ctx, r.mqtt))
	return management
}

// buildPipelines builds the program, and gives it the images, the clusters and an emulator of Azure.
func (r *region) buildPipelines(management *region, openTofu string) *pipelines {
	r.t.Helper()
	azure := must.Get(r.outside.StartAzure(r.ctx, r.entra))(r.t)
	built, kubeconfigs := r.t.TempDir(), r.t.TempDir()
	p := &pipelines{region: r, management: management, program: filepath.Join(built, "rollout"), checkout: r.root, kubeconfigs: kubeconfigs, stateDir: r.t.TempDir(),
		openTofu: openTofu, azure: azure, env: azure.Env}
	if output, err := exec.CommandContext(r.ctx, "go", "build", "-o", p.program, "../../tooling/rollout/cmd/rollout").CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, output)
	}
	for name, cluster := range map[string]*region{r.text("serviceCluster", "name"): r, management.text("managementCluster", "name"): management} {
		must.Do(r.t, os.Symlink(cluster.cluster.Kubeconfig(), filepath.Join(kubeconfigs, name+".kubeconfig")))
	}
	images := must.Get(filepath.Abs(filepath.Join(imagesDir, "images.json")))(r.t)
	p.flags = []string{"--kubeconfig-dir", kubeconfigs, "--images", images, "--opentofu", openTofu}
	return p
}

// start starts the program. Its output is in the log of the test, and its standard output in out.
func (p *pipelines) start(out *bytes.Buffer, verb string) *spawn.Process {
	p.t.Helper()
	return p.startProgram(out, append([]string{verb, target, "--state-dir", p.stateDir, "-o", "json"}, p.flags...)...)
}

// startProgram starts the program with arguments.
func (p *pipelines) startProgram(out *bytes.Buffer, arguments ...string) *spawn.Process {
	p.t.Helper()
	command := exec.Command(p.program, arguments...)
	command.Dir, command.Env, command.Stdout, command.Stderr = p.checkout, p.env, out, p.t.Output()
	process := must.Get(spawn.Start(command, syscall.SIGKILL))(p.t)
	p.t.Cleanup(process.Kill)
	return process
}

// run runs the program, which must succeed, and decodes its standard output.
func (p *pipelines) run(verb string, into any) {
	p.t.Helper()
	if err := p.attempt(verb, into); err != nil {
		p.printLogs()
		p.t.Fatalf("rollout %s: %v", verb, err)
	}
}

// attempt runs the program to its end and decodes its standard output.
func (p *pipelines) attempt(verb string, into any) error {
	p.t.Helper()
	var out bytes.Buffer
	began := time.Now()
	process := p.start(&out, verb)
	select {
	case <-process.Exited():
	case <-p.ctx.Done():
		p.t.Fatalf("rollout %s: %v", verb, p.ctx.Err())
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		p.t.Fatalf("rollout %s printed %q: %v, %v", verb, out.String(), err, process.Err())
	}
	p.log("rollout %s: ended after %v", verb, time.Since(began).Round(time.Millisecond))
	return process.Err()
}

// printLogs prints the logs of the steps.
func (p *pipelines) printLogs() {
	files, err := filepath.Glob(filepath.Join(p.stateDir, "public", "local", "*", "logs", "*.log"))
	if err != nil {
		p.t.Log(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		p.t.Logf("%s: %v\n%s", filepath.Base(file), err, text)
	}
	for _, service := range installation.ServiceImages() {
		p.printPods(service)
	}
	for _, program := range []string{agentName, hypershiftName, tunnelName} {
		p.management.printPods(program)
	}
}

// rolledOut is the outcome of a rollout.
type rolledOut struct{ Succeeded, UpToDate, Failed, NotRun, LeftOut []string }

// record returns the record of a step of the region.
func (p *pipelines) record(step string) state.Record {
	p.t.Helper()
	parsed := must.Get(layer.ParseTarget(target))(p.t)
	store := must.Get(state.Open(p.stateDir, parsed))(p.t)
	record, _ := store.Step(step)
	return record
}

// readOutput reads an output of a step with infrastructure.
func (p *pipelines) readOutput(step, name string, into any) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.record(step).Outputs[name]), into); err != nil {
		p.t.Fatalf("the output %s of %s: %v", name, step, err)
	}
}

// killWhileInstalling starts a rollout, and kills it while it installs the Maestro server, which cannot start without its Secrets. The agent is
// installed before, so it is supplied when it has a namespace. private is the file with its key.
func (p *pipelines) killWhileInstalling(private string) {
	p.t.Helper()
	var out bytes.Buffer
	process := p.start(&out, "run")
	await := func(what string, condition func() error) {
		p.t.Helper()
		ended := false
		eventually.Before(p.ctx, p.t, what, func() error {
			select {
			case <-process.Exited():
				ended = true
				return nil
			default:
				return condition()
			}
		})
		if ended {
			p.printLogs()
			p.t.Fatalf("the rollout ended before %s: %v", what, process.Err())
		}
	}
	await("the namespace of the agent", func() error {
		_, err := p.management.cluster.Client().CoreV1().Namespaces().Get(p.ctx, agentName, metav1.GetOptions{})
		return err
	})
	p.management.supplyAgent(private)
	await("a pod of the Maestro server", func() error {
		// The first one is that of the migration, which has another label.
		list, err := p.cluster.Client().CoreV1().Pods("maestro-server").List(p.ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("there is no pod")
		}
		return err
	})
	process.Kill()
}

// deployed returns the objects that a rollout changes: revisions of releases, and generations of services.
func (p *pipelines) deployed() map[string]string {
	p.t.Helper()
	found := map[string]string{}
	for _, r := range []*region{p.region, p.management} {
		client := r.cluster.Client()
		releases := must.Get(client.CoreV1().Secrets(metav1.NamespaceAll).List(p.ctx, metav1.ListOptions{LabelSelector: "owner=helm"}))(p.t)
		for _, release := range releases.Items {
			found[r.target.Name+": revision "+release.Namespace+"/"+release.Name] = release.ResourceVersion
		}
		services := must.Get(client.AppsV1().StatefulSets(metav1.NamespaceAll).List(p.ctx, metav1.ListOptions{}))(p.t)
		for _, service := range services.Items {
			found[r.target.Name+": service "+service.Namespace+"/"+service.Name] = fmt.Sprint(service.Generation)
		}
	}
	return found
}

// deliverWorks publishes bundles to the Maestro server of the service cluster, and expects that the agent and HyperShift's simulator apply them
// on the management cluster.
func (p *pipelines) deliverWorks(public string) {
	p.t.Helper()
	keys := must.Get(seal.ReadPublic(public))(p.t)
	const label = "app.kubernetes.io/name=maestro-server"
	m := &maestro{region: p.management}
	m.startSource(p.forwardPod("maestro-server", label, "8090"))
	m.deleteBundle(m.applyBundle(shard, keys), worksSpace)
	m.runHostedCluster(shard, keys)
}

// TestPipelinesInstallServices deploys the region of a machine with the pipelines: the infrastructure to an emulator of Azure, the services to a
// cluster of two nodes, and the agent with HyperShift's simulator to a management cluster. The rollout is killed while it installs a service,
// and goes on when it is run again.
func TestPipelinesInstallServices(t *testing.T) {
	transcript.Outcome(t, transcript.Installation)
	builtImages(t)
	openTofu := azuretest.Programs(t)
	ctx, cancel := context.WithTimeout(t.Context(), regionTimeout)
	defer cancel()
	r := startRegion(ctx, t, installation.ServiceImages()...)
	r.entra = r.startEntra()
	p := r.buildPipelines(r.startStamp(), openTofu)

	private, public := r.shardKeys()
	p.prepareEngineer()
	p.killWhileInstalling(private)
	if status := p.record("maestro-server/deploy").Status; status != state.Running {
		t.Fatalf("the step was %s when the rollout was killed", status)
	}
	// Entra ID and Cosmos DB know the identities that the infrastructure has created.
	p.readOutput("region/infrastructure", "clientIds", &r.target.ClientIDs)
	p.readOutput("region/infrastructure", "objectIds", &r.target.ObjectIDs)
	p.readOutput("management-cluster@1/infrastructure", "clientIds", &p.management.target.ClientIDs)
	r.addWorkloads()
	p.supplyTunnels()
	r.startCosmos()
	want := []string{tunnelName + "@1/deploy"}
	for _, service := range installation.ServiceImages() {
		r.supply(service)
		want = append(want, service+"/deploy")
	}
	want = append(want, "registration@1/shard")
	slices.Sort(want)
	p.signIn()
	var first, second rolledOut
	p.run("run", &first)
	if !slices.Equal(first.Succeeded, want) || len(first.UpToDate) == 0 {
		t.Errorf("after the kill: %+v, want %v to succeed", first, want)
	}
	r.registerConsumer(r.onTwoNodes("maestro-server"))
	r.listShards(r.onTwoNodes("cluster-service"))
	r.countGroups(r.onTwoNodes("backend"))
	r.callFrontend(r.onTwoNodes("frontend"))
	r.callAdmin(r.onTwoNodes("admin"))
	p.deliverWorks(public)
	p.section = transcript.Customer
	p.runCustomer()
	p.section = transcript.Installation

	before := p.deployed()
	p.run("run", &second)
	if len(second.Succeeded)+len(second.Failed)+len(second.NotRun) > 0 || len(second.UpToDate) != len(first.Succeeded)+len(first.UpToDate) {
		t.Errorf("the second rollout: %+v", second)
	}
	if diff := cmp.Diff(before, p.deployed()); diff != "" || len(before) < 12 {
		t.Errorf("the second rollout changed objects (-before +after):\n%s", diff)
	}
	var planned struct {
		Steps []struct{ Step, Verdict string }
	}
	p.run("plan", &planned)
	for _, step := range planned.Steps {
		if step.Verdict != string(plan.Skip) && step.Verdict != string(plan.LeftOut) {
			t.Errorf("a plan after the rollout has %s: %s", step.Step, step.Verdict)
		}
	}
	p.expectNames()
	p.copyCheckout()
	p.section = transcript.Upgrade
	p.upgradeRegion()
	p.section = transcript.Rollback
	p.rollBackUpgrade()
	p.section = transcript.ServiceClusterLoss
	p.loseServiceCluster()
	p.section = transcript.Deletion
	p.deleteRegion()
}

// expectNames expects that the services use the names of the infrastructure, as Azure would return them.
func (p *pipelines) expectNames() {
	p.t.Helper()
	var result struct {
		Cosmos   struct{ Endpoint string }
		Postgres map[string]struct{ Host, Database string }
		Events   struct{ MQTTAddress string }
		Vaults   map[string]struct{ URI string }
	}
	p.readOutput("region/infrastructure", "result", &result)
	var addresses []string
	p.readOutput("service-cluster/infrastructure", "egressAddresses", &addresses)
	var hosts []string
	for _, server := range result.Postgres {
		hosts = append(hosts, server.Host)
	}
	wanted := postgresHosts(p.t, p.target)
	if slices.Sort(hosts); !slices.Equal(hosts, slices.Sorted(slices.Values(wanted))) {
		p.t.Errorf("the infrastructure has the PostgreSQL servers %v, and pods reach %v", hosts, wanted)
	}
	database := func(server string) string {
		return result.Postgres[server].Host + "/" + result.Postgres[server].Database
	}
	for service, names := range map[mesh.Peer][]string{
		mesh.MaestroServer:  {database("maestro"), result.Events.MQTTAddress},
		mesh.ClusterService: {database("cluster-service"), strings.TrimSuffix(result.Vaults["clusters"].URI, "/")},
		mesh.Backend:        {result.Cosmos.Endpoint},
		mesh.Frontend:       {result.Cosmos.Endpoint},
		mesh.Admin:          {result.Cosmos.Endpoint},
		mesh.Monitor:        {result.Cosmos.Endpoint, strings.Join(addresses, ",")},
		mesh.MaestroAgent:   {result.Events.MQTTAddress},
		mesh.GatewayTunnel:  {"https://" + p.text("ingress", "tunnels", "host")},
	} {
		w, _ := workload.Find(service)
		r := p.region
		if w.Management {
			r = p.management
		}
		names = append(names, r.target.ClientIDs[r.text(append(slices.Clone(w.Key), "managedIdentity")...)])
		text := r.settings(string(service))
		for _, name := range names {
			if name == "" || !strings.Contains(text, name) {
				p.t.Errorf("%s does not use %q of the infrastructure", service, name)
			}
		}
	}
}

// settings returns the pods and the configuration files of a service as JSON.
func (r *region) settings(service string) string {
	r.t.Helper()
	configuration := must.Get(r.cluster.Client().CoreV1().ConfigMaps(service).List(r.ctx, metav1.ListOptions{}))(r.t)
	text := must.Get(json.Marshal(struct {
		Pods          []corev1.Pod
		Configuration []corev1.ConfigMap
	}{r.pods(service), configuration.Items}))(r.t)
	return string(text)
}
