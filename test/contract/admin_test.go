package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server/servertest"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	csmaestro "github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// expectedFailures lists the cases whose operation fails in this region, with the reason.
var expectedFailures = map[string]string{
	"armOperations.cancel":        "the only operation in progress is a deletion, which cannot be canceled",
	"azureOrphans.delete":         "two searches an hour apart must find a resource",
	"clusters.acceptControlPlane": "the cluster has the control plane that it was installed with",
	"clusters.force":              "all Azure steps of the cluster are complete, and only a stuck step can be forced",
	"deletions.force":             "the step is in progress, and only a stuck step can be forced",
}

// inProcess lists the cases that this region cannot run, with the reason. They run in process.
var inProcess = map[string]string{
	"recordings.content":             "no command runs in a pod; a test of sessions in e2e reads recordings",
	"recordings.get":                 "no command runs in a pod; a test of sessions in e2e reads recordings",
	"serviceClusterSessions.request": "a region on one machine has no service cluster; a test on nodes uses such a session",
	"silences.create":                "the region has no Alertmanager",
	"silences.end":                   "the region has no Alertmanager",
}

// later lists the actions that remove what other cases need. Their cases run last.
var later = []string{"abort", "delete", "deregister"}

// TestCasesOfAdmin runs admin's cases one after the other, on clusters in the states that they need. The backend and Cluster
// Service execute the requested actions. Afterwards the test checks the logs and the audit records of the region.
func TestCasesOfAdmin(t *testing.T) {
	h := &adminFixture{t: t, region: start(t), revoked: map[string]bool{}}
	suite := httpcase.Suite{Dir: "../../admin/testdata"}
	cases := must.Get(suite.Load())(t)
	slices.SortStableFunc(cases, func(a, b httpcase.Case) int { return rank(a.Name) - rank(b.Name) })
	variables := h.setUp()
	defer h.tearDown()
	connections := must.Get(transport.New(h.region.Endpoints().CAFile))(t)
	connections.MaxIdleConnsPerHost = 4
	tokens := &engineers{next: connections, tokens: h.tokens()}
	record := servertest.New(tokens)
	target := httpcase.Target{BaseURL: h.region.Endpoints().Admin, Client: &http.Client{Transport: record}, RetryInterval: pause,
		Headers: [][2]string{{"Content-Type", "application/json"}}}
	for _, c := range cases {
		if inProcess[c.Name] != "" {
			continue
		}
		h.awaitRevocations()
		target.Variables = maps.Clone(variables)
		target.Variables["outcome"] = string(adminv1.Succeeded)
		if expectedFailures[c.Name] != "" {
			target.Variables["outcome"] = string(adminv1.Failed)
		}
		if strings.HasPrefix(c.Name, "orphans.") {
			target.Variables["orphan"] = h.orphan()
		}
		if strings.HasPrefix(c.Name, "drift.") {
			target.Variables["drifted"] = h.drift()
		}
		if err := suite.Run(t.Context(), target, c); err != nil {
			t.Errorf("%s: %s: %v", c.Name, c.Reason, err)
		}
	}
	secrets := map[string]string{"a token": "Bearer ", "a key": "PRIVATE KEY", "a signing request": "BEGIN CERTIFICATE REQUEST"}
	for who, token := range tokens.tokens {
		secrets["the token of "+who] = token
	}
	t.Run("every route", func(t *testing.T) { record.EveryRoute(t, slices.Collect(maps.Keys(inProcess))...) })
	t.Run("the document", record.EveryAnswer)
	t.Run("secrets", func(t *testing.T) {
		answers := maps.Clone(secrets)
		delete(answers, "a signing request") // operations show their parameters
		record.NoAnswerShows(t, answers)
	})
	t.Run("the audit", func(t *testing.T) { h.audit(t, secrets) })
}

// rank orders the cases so that each finds what it needs.
func rank(name string) int {
	_, verb, _ := strings.Cut(name, ".")
	if slices.Contains(later, verb) {
		return 1
	}
	return 0
}

// goneController is the finalizer that the cases release.
const goneController = "backup.example.com/hook"

// engineers replaces the name of an engineer in the Authorization header by the token of that engineer.
type engineers struct {
	next   http.RoundTripper
	tokens map[string]string
}

// RoundTrip implements http.RoundTripper.
func (e *engineers) RoundTrip(r *http.Request) (*http.Response, error) {
	if name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+e.tokens[name])
	}
	return e.next.RoundTrip(r)
}

// adminFixture is a region with the clusters that admin's cases need.
type adminFixture struct {
	t      *testing.T
	region *local.Region
	oncall *adminclient.Client
	// someone owns the clusters alpha, beta and going. The deletion of going is in progress; kubeconfig and namespace locate it.
	someone                      *customer.Customer
	alpha, beta                  string
	going, kubeconfig, namespace string
	// orphaned is the bundle without a work, and drifted the cluster without an ARM document. Both are empty until created.
	orphaned, drifted string
	// revoked has the IDs of the elevations with revoked credentials.
	revoked map[string]bool
}

// tokens returns the tokens of the region's engineers by name.
func (h *adminFixture) tokens() map[string]string {
	h.t.Helper()
	e := h.region.Endpoints()
	connections := must.Get(transport.New(e.CAFile))(h.t)
	client := &http.Client{Transport: connections}
	tokens := map[string]string{}
	for _, name := range []string{"oncall", "approver", "operator", "reader", "guest"} {
		source := must.Get(armclient.NewCredential(e.ARM, e.EngineersFile, name, client))(h.t)
		token := must.Get(source.GetToken(h.t.Context(), policy.TokenRequestOptions{Scopes: []string{e.AdminAudience + "/.default"}}))(h.t)
		tokens[name] = token.Token
	}
	return tokens
}

func (h *adminFixture) eventually(what string, holds func() error) {
	h.t.Helper()
	eventually.Soon(h.t, what, holds)
}

// done waits until an operation is terminal.
func (h *adminFixture) done(operation *adminv1.Operation, err error) *adminv1.Operation {
	h.t.Helper()
	must.Do(h.t, err)
	operation = must.Get(h.oncall.Await(h.t.Context(), operation))(h.t)
	return operation
}

// awaitRevocations waits until the credentials of all ended elevations are revoked. A revocation cancels the requests for other credentials of
// its class in the same cluster, so that a case that requests one must not begin meanwhile.
func (h *adminFixture) awaitRevocations() {
	h.t.Helper()
	ended, _, err := adminclient.List(h.t.Context(), h.oncall, adminv1.ReadElevations, adminclient.Query{"state": adminv1.ElevationEnded}, 1_000)
	must.Do(h.t, err)
	for _, elevation := range ended {
		if len(elevation.Credentials) == 0 || h.revoked[elevation.ID] {
			continue
		}
		h.eventually("the credentials of the elevation "+elevation.ID+" are revoked", func() error {
			current, err := adminclient.Get(h.t.Context(), h.oncall, adminv1.ReadElevation, nil, elevation.ID)
			if err != nil {
				return err
			}
			for _, c := range current.Credentials {
				if c.Revocation == nil || c.Revocation.State != adminv1.RevocationRevoked {
					return fmt.Errorf("%+v", c.Revocation)
				}
			}
			return nil
		})
		h.revoked[elevation.ID] = true
	}
}

// setUp creates three clusters: alpha, with a node pool and a credential; beta, with an upgrade that starts tomorrow; and one
// whose deletion is in progress. It returns the variables of the cases. Subscription and names are unique to this run, because
// admin finds clusters by name and the region may have run the cases before.
func (h *adminFixture) setUp() map[string]string {
	h.t.Helper()
	ctx, e := h.t.Context(), h.region.Endpoints()
	h.oncall = must.Get(customer.NewEngineer(e, "oncall"))(h.t)
	someone := must.Get(customer.New(ctx, e, uuid.NewString(), "admin"))(h.t)
	h.t.Cleanup(func() { _ = someone.Close() })
	run := uuid.NewString()[:6]
	h.someone, h.alpha, h.beta = someone, "alpha-"+run, "beta-"+run
	deleted := "going-" + run
	var made sync.WaitGroup
	failed := make([]error, 3)
	for i, name := range []string{h.alpha, h.beta, deleted} {
		made.Go(func() {
			id, body := someone.ClusterID(name), someone.ClusterBody(name)
			body.Properties.(map[string]any)["version"] = map[string]any{"id": "4.20", "channelGroup": "stable"}
			if _, failed[i] = someone.Put(ctx, id, body); failed[i] == nil && name == h.alpha {
				_, failed[i] = someone.Put(ctx, someone.NodePoolID(name, "np"), someone.NodePoolBody(2))
			}
		})
	}
	made.Wait()
	must.Do(h.t, errors.Join(failed...))
	dump := must.Get(adminclient.Get(ctx, h.oncall, adminv1.ReadDump, nil, someone.ClusterID(h.alpha)))(h.t)
	beta := must.Get(adminclient.Get(ctx, h.oncall, adminv1.ReadCluster, nil, someone.ClusterID(h.beta)))(h.t)
	going := must.Get(adminclient.Get(ctx, h.oncall, adminv1.ReadCluster, nil, someone.ClusterID(deleted)))(h.t)

	elevation := must.Get(h.oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.BreakGlassAccess, Cluster: dump.Cluster.UID, Reason: "the cases need a credential", Ticket: "TEST-1", Duration: "30m"}))(h.t)
	me := must.Get(adminclient.Get(ctx, h.oncall, adminv1.ReadMe, nil))(h.t)
	_, signing, err := credential.EngineerRequest(me.ObjectID, adminv1.LevelAdmin)
	must.Do(h.t, err)
	issued := h.done(h.oncall.Act(ctx, adminv1.ActionCredentialRequest, adminv1.CredentialRequest{Level: adminv1.LevelAdmin, CertificateSigningRequest: string(signing)}, dump.Cluster.UID))
	h.eventually("the credential is issued", func() error {
		c, err := adminclient.Get(ctx, h.oncall, adminv1.ReadCredential, nil, issued.ID)
		if err == nil && c.Of.GetStatus().GetCertificate() == "" {
			err = fmt.Errorf("state is %s", c.Of.GetStatus().GetState())
		}
		return err
	})
	must.Get(h.oncall.EndElevation(ctx, elevation.ID))(h.t)
	elevation = must.Get(h.oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "the cases need an upgrade", Ticket: "TEST-1", Duration: "30m"}))(h.t)
	upgrade := h.done(h.oncall.Act(ctx, adminv1.ActionUpgradeStart, &csv1.StartUpgradeRequest{Version: "4.21.4", NotBefore: timestamppb.New(time.Now().Add(24 * time.Hour))}, beta.UID))
	must.Get(h.oncall.EndElevation(ctx, elevation.ID))(h.t)

	h.going, h.kubeconfig, h.namespace = going.UID, e.Kubeconfigs[going.ProvisionShard], going.Namespace
	// The cases release the finalizer of a controller that is gone. The fault keeps the deletion in progress after that.
	h.kubectl("annotate", "hostedclusters", "--all", contract.FaultAnnotation+"="+string(contract.FaultDeleteStuck))
	h.kubectl("patch", strings.TrimSpace(h.kubectl("get", "hostedclusters", "--output", "name")), "--type", "json", "--patch",
		`[{"op": "add", "path": "/metadata/finalizers/-", "value": "`+goneController+`"}]`)
	must.Get(someone.Resources.BeginDeleteByID(ctx, going.ResourceID, customer.APIVersion, nil))(h.t)
	operation := ""
	h.eventually("the deletion waits for the HostedCluster", func() error {
		shown, err := adminclient.Get(ctx, h.oncall, adminv1.ReadDeletion, nil, going.UID)
		if err != nil {
			return err
		}
		for _, d := range shown.Items {
			operation = d.OperationID
			for _, s := range d.Deletion.Of.GetSteps() {
				if s.GetName() == "hosted-cluster" && slices.Contains(s.GetFinalizers(), goneController) {
					return nil
				}
			}
		}
		return fmt.Errorf("deletions are %v", shown.Items)
	})
	request := must.Get(json.Marshal(string(signing)))(h.t)
	return map[string]string{
		"domain": "hcpmesh.local", "subscription": strings.ToLower(someone.Subscription), "cluster": dump.Cluster.UID, "name": dump.Cluster.Name, "cluster-id": dump.Cluster.ClusterID, "pool": dump.ARM.NodePools[0].UID,
		"deleting": going.UID, "operation": operation, "credential": issued.ID, "upgrade": upgrade.ID, "version": "4.21.4", "gate": "minor-version",
		"csr": strings.Trim(string(request), `"`),
	}
}

// kubectl runs kubectl in the namespace of the cluster that is being deleted, and returns its output.
func (h *adminFixture) kubectl(arguments ...string) string {
	h.t.Helper()
	command := exec.CommandContext(context.WithoutCancel(h.t.Context()), h.region.Endpoints().Kubectl, append([]string{"--namespace", h.namespace}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	output, err := command.CombinedOutput()
	if err != nil {
		h.t.Fatalf("kubectl %s: %v: %s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// drift creates a cluster in Cluster Service that has no ARM document, once, and returns its UID.
func (h *adminFixture) drift() string {
	h.t.Helper()
	if h.drifted != "" {
		return h.drifted
	}
	e := h.region.Endpoints()
	identity := must.Get(mesh.LoadIdentity(e.Identities[string(mesh.Frontend)]))(h.t)
	connection := must.Get(clusterservice.Dial(h.t.Context(), e.ClusterService, identity))(h.t)
	defer func() { _ = connection.Close() }()
	const scope = "/subscriptions/11111111-0000-0000-0000-0000000000dd/resourceGroups/drift/providers/"
	uid := uuid.NewString()
	_, err := csv1.NewClusterServiceClient(connection).ApplyCluster(h.t.Context(), &csv1.ApplyClusterRequest{
		Uid: uid, ResourceId: scope + "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/drifted", Generation: 1,
		Spec: &csv1.ClusterSpec{
			Name: "drifted", Location: "westus3", TenantId: "64dc69e4-d083-49fc-9569-ebece1dd1408", Version: &csv1.Version{Id: "4.20", ChannelGroup: "stable"},
			Network: &csv1.Network{NetworkType: "OVNKubernetes", PodCidr: "10.128.0.0/14", ServiceCidr: "172.30.0.0/16", MachineCidr: "10.0.0.0/16", HostPrefix: 23},
			Api:     &csv1.Api{Visibility: csv1.Visibility_VISIBILITY_PUBLIC}, ImageRegistryEnabled: true,
			Platform: &csv1.Platform{SubscriptionId: "11111111-0000-0000-0000-0000000000dd", ResourceGroup: "drift", ManagedResourceGroup: "managed-drifted", OutboundType: "LoadBalancer",
				SubnetId: scope + "Microsoft.Network/virtualNetworks/vnet/subnets/sub", NetworkSecurityGroupId: scope + "Microsoft.Network/networkSecurityGroups/nsg"},
		},
	})
	must.Do(h.t, err)
	h.drifted = uid
	return uid
}

// orphan creates a Maestro bundle that never had a work, once, and returns its ID. Cluster Service ignores such a bundle.
func (h *adminFixture) orphan() string {
	h.t.Helper()
	if h.orphaned != "" {
		return h.orphaned
	}
	e := h.region.Endpoints()
	identity := must.Get(mesh.LoadIdentity(e.Identities[string(mesh.ClusterService)]))(h.t)
	client := must.Get(csmaestro.NewClient("passthrough:///"+e.MaestroGRPC, fleet.Source, credentials.NewTLS(identity.ClientTLS(mesh.MaestroServer)), slog.New(slog.DiscardHandler)))(h.t)
	defer func() { _ = client.Close() }()
	id := uuid.NewString()
	name := "orphan-" + id[:8]
	manifest := must.Get(json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}))(h.t)
	_, err := client.Create(h.t.Context(), &csmaestro.Bundle{ID: id, Name: name, Consumer: "mgmt-1", Manifests: []json.RawMessage{manifest},
		Configs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: name},
			UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}}}})
	must.Do(h.t, err)
	h.eventually("admin lists the orphan", func() error {
		orphans, err := adminclient.Get(h.t.Context(), h.oncall, adminv1.ReadOrphans, nil)
		if err == nil && (len(orphans.Items) != 1 || orphans.Items[0].ID != id) {
			err = fmt.Errorf("admin lists %d orphans", len(orphans.Items))
		}
		return err
	})
	h.orphaned = id
	return id
}

// audit checks the logs and audit records: those of admin for every mutation and rejection, those of the backend for the outcome
// of each operation, and those of Cluster Service for each action.
func (h *adminFixture) audit(t *testing.T, secrets map[string]string) {
	var durable []adminv1.AuditEntry
	logs := map[string]string{}
	// Records are written shortly after the fact.
	h.eventually("all records are written", func() error {
		for _, process := range []string{"admin", "backend", "cluster-service"} {
			content, err := os.ReadFile(filepath.Join(h.region.LogDir(), process+".log"))
			if err != nil {
				return err
			}
			logs[process] = string(content)
		}
		accepted := map[string]bool{}
		for _, l := range servertest.Lines(logs["admin"]) {
			accepted[l.OperationID] = true
		}
		ended := map[string]servertest.Line{}
		for _, l := range servertest.Lines(logs["backend"]) {
			ended[l.OperationID] = l
		}
		var err error
		if durable, _, err = adminclient.List(t.Context(), h.oncall, adminv1.ReadAudit, nil, 500); err != nil {
			return err
		}
		for _, entry := range durable {
			if v := entry.Elevation; v != nil && !accepted[v.ID] {
				return fmt.Errorf("admin's log does not have elevation %s", v.ID)
			}
			if o := entry.Operation; o != nil {
				if !accepted[o.ID] {
					return fmt.Errorf("admin's log does not have operation %s", o.ID)
				}
				if l := ended[o.ID]; !o.State.Terminal() || l.Outcome != string(o.State) || l.Actor != o.Actor.Name || l.Reason != o.Actor.Reason || l.Ticket != o.Actor.Ticket {
					return fmt.Errorf("record of %s %s (%s) is %+v", o.Action, o.ID, o.State, l)
				}
			}
		}
		return nil
	})
	servertest.EveryMutation(t, logs["admin"], durable, secrets, slices.Collect(maps.Keys(inProcess))...)
	done := 0
	for text := range strings.SplitSeq(logs["cluster-service"], "\n") {
		var l struct{ Msg, Actor, Reason, Action string }
		if json.Unmarshal([]byte(text), &l) != nil || l.Msg != "audit" {
			continue
		}
		done++
		if l.Actor == "" || l.Reason == "" || l.Action == "" {
			t.Errorf("incomplete audit record of Cluster Service: %s", text)
		}
	}
	if done == 0 {
		t.Error("Cluster Service has no audit records")
	}
	for process, log := range logs {
		for what, text := range secrets {
			if strings.Contains(log, text) {
				t.Errorf("the log of %s contains %s", process, what)
			}
		}
	}
}

// tearDown restores the region for the cases of the frontend and for another run: it uncordons the management cluster, lets the
// pending deletion finish and deletes the other clusters.
func (h *adminFixture) tearDown() {
	h.t.Helper()
	ctx := h.t.Context()
	h.kubectl("annotate", "hostedclusters", "--all", contract.FaultAnnotation+"-")
	elevation := must.Get(h.oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "the cases are complete", Ticket: "TEST-1", Duration: "10m"}))(h.t)
	h.done(h.oncall.Act(ctx, adminv1.ActionShardUpdate, &csv1.UpdateProvisionShardRequest{Cordoned: proto.Bool(false)}, "mgmt-1"))
	must.Get(h.oncall.EndElevation(ctx, elevation.ID))(h.t)
	for _, name := range []string{h.alpha, h.beta} {
		must.Do(h.t, h.someone.EnsureGone(ctx, h.someone.ClusterID(name)))
	}
	h.eventually("the deletion is complete", func() error {
		shown, err := adminclient.Get(ctx, h.oncall, adminv1.ReadDeletion, nil, h.going)
		if err == nil && (len(shown.Items) != 1 || !shown.Items[0].Over) {
			err = fmt.Errorf("deletions are %v", shown.Items)
		}
		return err
	})
}
