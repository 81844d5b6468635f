package drills

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// fullQueue is the service whose audit queue has a small disk of its own. Engineers use it all the time, so it writes records.
const fullQueue = "admin"

// configuration is the file with the configuration of Cluster Service.
const configuration = "cluster-service.yaml"

// drills returns all drills in their order. While ComponentAway fires, Alertmanager does not send that alerts have ended which it silences, so
// drills that make components unavailable do not begin while such alerts fire. The one that counts failures of hosted API servers is last: those
// within 15 minutes of a creation do not count.
func drills() []drill {
	return []drill{
		away(adminv1.ComponentMaestroServer),
		away(adminv1.ComponentAgent),
		{
			fault: "the prober of a management cluster is away", inject: hold("mgmt-1-monitor-inside"),
			during: []expected{alert("InsideProberSilent", "shard", "mgmt-1")},
		},
		away(adminv1.ComponentCosmosDB),
		{
			fault: "Cosmos DB is very slow while many customers send requests", inject: busyFrontend,
			during: []expected{alert("FrontendBusy")},
		},
		{
			fault:  "all replicas of the backend, admin, monitor, the session gateway and a log forwarder are away",
			inject: hold("backend", "admin", "monitor", "gateway-access", "mgmt-1-log-forwarder"),
			during: []expected{alert("MetricsMissing", "component", "backend"), alert("MetricsMissing", "component", "monitor"), alert("MetricsMissing", "component", "gateway-access"),
				alert("MetricsMissing", "component", "log-forwarder"), alert("ComponentsNotObserved")},
			silent: []expected{alert("TargetDown", "job", "backend")},
		},
		{
			fault: "Cluster Service is away while a node pool is deleted", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				release := hold("cluster-service")(t, ctx, r)
				deleted := make(chan error, 1)
				go func() { deleted <- r.customer.Delete(ctx, r.customer.NodePoolID(first, single)) }()
				return func() {
					release()
					if err := <-deleted; err != nil {
						t.Error(err)
					}
				}
			},
			during: []expected{alert("BackendDeletionStepStuck", "step", "fleet-accepted")},
		},
		{
			fault: "the agent of a management cluster and admin are away while node pools are created and deleted", settle: true, inject: agentAway,
			during: []expected{alert("AgentSilent", "shard", "mgmt-1"), alert("DeliveriesStand", "shard", "mgmt-1"), alert("DeliveryBurnFast", "shard", "mgmt-1"),
				alert("OperationStuck", "request", "Create"), alert("DeletionStepStuck")},
			then: append(append(burns("CreatesBurn"), burns("DeletesBurn")...), alert("DeliveryBurnSlow"), alert("DeliveryBurn3d")),
		},
		{
			fault: "the update graph is away", background: true, inject: hold("update-graph"),
			during: []expected{alert("TargetDown", "job", "update-graph"), alert("UpdateGraphOld")},
		},
		{
			fault: "the certificate of a process is not renewed", inject: endingCertificate,
			during: []expected{alert("WorkloadCertificateExpires", "job", "monitor")},
		},
		{
			fault: "the configuration of Cluster Service is damaged", inject: func(t *testing.T, _ context.Context, r *region) func() {
				return r.Aside(t, configuration, []byte("azureResources: [\n"))
			},
			during: []expected{alert("SettingsUnusable")},
		},
		{
			fault: "a management cluster has the capacity for the clusters that it has", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				r.mustHcpctl(t, ctx, "shard", "set", "mgmt-1", "--capacity", capacity, "--reason", "drill of the capacity", "--ticket", "CHG-1")
				return func() {
					r.mustHcpctl(t, ctx, "shard", "set", "mgmt-1", "--use-configured", "capacity", "--reason", "drill of the capacity", "--ticket", "CHG-1")
				}
			},
			during: []expected{alert("RegionNearlyFull")},
			silent: []expected{alert("ShardNearlyFull")},
		},
		{
			fault: "a full management cluster is cordoned", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				r.mustHcpctl(t, ctx, "shard", "cordon", "mgmt-1", "--accept-no-room", "--reason", "drill of a cordon", "--ticket", "CHG-1")
				r.mustHcpctl(t, ctx, "shard", "set", "mgmt-1", "--capacity", capacity, "--reason", "drill of the capacity", "--ticket", "CHG-1")
				return func() {
					r.mustHcpctl(t, ctx, "shard", "set", "mgmt-1", "--use-configured", "capacity", "--reason", "drill of the capacity", "--ticket", "CHG-1")
					r.mustHcpctl(t, ctx, "shard", "uncordon", "mgmt-1", "--reason", "drill of a cordon", "--ticket", "CHG-1")
				}
			},
			during: []expected{alert("NoActiveShard"), alert("ShardNearlyFull", "shard", "mgmt-1")},
		},
		{
			fault: "the export of audit records fails", inject: func(t *testing.T, _ context.Context, r *region) func() {
				return r.Aside(t, "audit/sink", []byte("no folder"))
			},
			during: []expected{alert("AuditExportFailing")},
		},
		{
			fault: "the disk of an audit queue is full", inject: func(t *testing.T, _ context.Context, r *region) func() {
				return fault.FillDisk(t, filepath.Join(r.Dir, "audit", "queue", fullQueue))
			},
			during: []expected{alert("AuditRejecting", "cause", "disk")},
		},
		{
			fault: "the export of recordings of commands fails", inject: recordingsNotExported,
			during: []expected{alert("RecordingExportFailing")},
		},
		{
			fault: "the tunnel of a management cluster is away", inject: hold("mgmt-1-gateway-tunnel"),
			during: []expected{alert("TunnelMissing", "shard", "mgmt-1")},
		},
		{
			fault: "the folder of recordings of commands is away", inject: recordingsUnwritable,
			during: []expected{alert("CommandsNotRecorded", "cause", "disk")},
		},
		{
			fault: "the document of an access session is rewritten", inject: rewriteSession,
			during: []expected{alert("AccessSessionForged", "reason", "changed")},
		},
		{
			fault: "an engineer keeps a service account after a session", inject: keepServiceAccount,
			during: []expected{alert("AccessOutlivesSession")},
		},
		{
			fault: "a kind of a management cluster becomes stricter", inject: stricterKind,
			during: []expected{alert("WorksRefused")},
		},
		{
			fault: "an elevation that was ended is set back", inject: setElevationBack,
			during: []expected{alert("ElevationForged", "reason", "set-back")},
		},
		{
			fault: "an engineer acts in an emergency", inject: emergency,
			during: []expected{alert("EmergencyElevation")},
		},
		{
			fault: "the ticket validator is away", inject: ticketValidatorAway,
			during: []expected{alert("TicketValidatorFailing"), alert("TicketsUnchecked")},
		},
		{
			fault: "the log of a management cluster's audit is damaged", inject: damageManagementAudit,
			during: []expected{alert("ManagementAuditEventsMissing")},
		},
		{
			fault: "the log of a management cluster's audit cannot be read", inject: func(t *testing.T, _ context.Context, r *region) func() {
				return r.Aside(t, "management/mgmt-1/audit/audit.log", nil)
			},
			during: []expected{alert("ManagementAuditFailing")},
		},
		{
			fault: "names that control planes connect to do not resolve", inject: unresolvedNames,
			during: []expected{alert("EgressProxyFailing")},
		},
		{
			fault: "a private endpoint of the egress gateway belongs to no cluster", inject: unknownLinks,
			during: []expected{alert("EgressLinkUnknown")},
		},
		{
			fault: "somebody writes an egress link that no engineer asked for", inject: forgeLink,
			during: []expected{alert("EgressLinkRefused", "reason", "unverified")},
		},
		{
			fault: "the signature of a release is damaged, and that of another cannot be read", settle: true, background: true, inject: damageSignatures,
			during: []expected{alert("ReleaseRefused"), alert("ReleaseSignaturesUnreadable")},
		},
		{
			fault: "Azure Storage refuses the logs of a customer", background: true, inject: logsRefused,
			during: []expected{alert("CustomerLogsStand", "fault", "azure")},
		},
		{
			fault: "the log of a customer has a line that is too long", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				r.logLine(t, ctx, first, strings.Repeat("x", 2<<20))
				return func() {}
			},
			during: []expected{alert("CustomerLogsPoisoned")},
		},
		{
			fault: "a file of a customer's log is removed before it is delivered", settle: true, inject: loseLog,
			during: []expected{alert("CustomerLogsLost")},
		},
		{
			fault: "Cluster Service does not know a break-glass credential that is in use", inject: forgetCredential,
			during: []expected{alert("UnexplainedBreakGlassUse", "outcome", "unknown")},
		},
		{
			fault: "the database of Cluster Service is restored to an earlier state, and a partition of Cosmos DB cannot be read", inject: restoreFleet,
			during: []expected{alert("ReconciliationPending")},
			then:   []expected{alert("FleetLostState", "kind", "nodePool")},
		},
		{
			fault: "Maestro has a bundle that Cluster Service does not know", background: true, inject: publishUnknown,
			during: []expected{alert("UnknownBundlesRemain")},
		},
		{
			fault: "Cosmos DB lost the newest generation of a node pool", inject: disagree,
			during: []expected{alert("ReconciliationFindings", "type", "Newer")},
		},
		{
			fault: "the folder of an audit queue is damaged", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				queue := r.Aside(t, "audit/queue/maestro-server", []byte("no folder"))
				r.restart(t, ctx, "maestro-server")
				return func() {
					queue()
					r.restart(t, ctx, "maestro-server")
				}
			},
			during: []expected{alert("AuditQueueUnusable")},
		},
		{
			fault: "an audit chain in the sink was changed", inject: changeSink,
			during: []expected{alert("AuditSinkConflict")},
		},
		{
			fault: "the API servers of a management cluster are away", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				return r.killHosted(t, ctx, first, second, third)
			},
			during: []expected{alert("ShardAPIsDown", "shard", "mgmt-1")},
		},
		{
			fault: "monitor reaches neither the frontend nor Cluster Service", inject: hold("frontend", "cluster-service"),
			during: []expected{alert("MonitorBlind")},
		},
		{
			fault: "a table of Cluster Service's database is missing", settle: true, inject: func(t *testing.T, ctx context.Context, r *region) func() {
				r.sql(t, ctx, "ALTER TABLE upgrades RENAME TO upgrades_aside")
				stop := r.repeat(ctx, func(ctx context.Context) { _ = r.hcpctl(ctx, "upgrade", "list") })
				return func() {
					stop()
					r.sql(t, ctx, "ALTER TABLE upgrades_aside RENAME TO upgrades")
				}
			},
			during: []expected{alert("CallsBurnFast"), alert("AdminBurnFast")},
			then:   []expected{alert("CallsBurnSlow"), alert("CallsBurn3d"), alert("AdminBurnSlow"), alert("AdminBurn3d")},
		},
		{
			fault: "Cosmos DB is slow", inject: cosmosFault(map[string]any{"id": "slow", "container": "Resources", "resourceTypes": []string{"docs"}, "latencyMs": 1500}),
			during: []expected{alert("ARMReadsBurnFast"), alert("ARMWritesBurnFast")},
			then:   []expected{alert("ARMReadsBurnSlow"), alert("ARMReadsBurn3d"), alert("ARMWritesBurnSlow"), alert("ARMWritesBurn3d")},
		},
		{
			fault: "control planes and objects of clusters are removed", inject: removeControlPlane,
			during: []expected{alert("ControlPlaneLost"), alert("ManagementClusterObjectsRemoved", "shard", "mgmt-1")},
		},
		{
			fault: "Cosmos DB answers with errors", settle: true,
			inject: cosmosFault(map[string]any{"id": "errors", "container": "Resources", "resourceTypes": []string{"docs"}, "operations": []string{"read", "query"}, "status": 500}),
			during: []expected{alert("ARMBurnFast")},
			then:   []expected{alert("ARMBurnSlow"), alert("ARMBurn3d")},
		},
		{
			fault: "the API servers of two clusters are away, of which one does not admit monitor", inject: func(t *testing.T, ctx context.Context, r *region) func() {
				r.awaitGrace(ctx)
				return r.killHosted(t, ctx, second, closed)
			},
			during: []expected{alert("HostedAPIBurnFast", "resource_id", resourceID(second)), alert("HostedAPIBurnFast", "resource_id", resourceID(closed)),
				alert("ClustersWithConcern")},
			then: []expected{alert("HostedAPIBurnSlow", "resource_id", resourceID(second)), alert("HostedAPIBurnSlow", "resource_id", resourceID(closed))},
		},
	}
}

// withoutDrill has the reason for each alert that has no drill.
var withoutDrill = map[string]string{
	"AccessRecordsMissing":             "events are dropped only after the audit has stored nothing for hours",
	"AuditChainUnconfirmed":            "admin finds it with a later check, and checks are five minutes apart; AuditSinkConflict has a drill",
	"AuditChecksFailing":               "no check may succeed for half an hour",
	"AuditQueueFilling":                "the queue of a region of processes is larger than what a drill writes",
	"AzureOrphansRemain":               "two searches an hour apart must find a resource",
	"AzureSearchesOverdue":             "a subscription must not be searched for a day",
	"ClustersUnwatched":                "monitor has no part that fails without its process",
	"DeletionLeftoversRemain":          "it must hold for 24 hours, which are 24 minutes in a drill",
	"DeliveriesParked":                 "Cluster Service renders nothing that is too large for the broker",
	"EgressGatewayFailing":             "EgressProxyFailing has a drill with the same condition",
	"EgressGatewayFull":                "it needs more connections than a test opens",
	"EgressGatewayStale":               "Cosmos DB would have to be away for five minutes, in which most other alerts fire",
	"EgressLinkFull":                   "it needs more connections than a test opens",
	"EgressProxyBusy":                  "it needs more connections than a test opens",
	"FrontendPanics":                   "no request is known that panics",
	"HostedAPIBurn3d":                  "its 20 failed probes take longer than the drill of HostedAPIBurnFast and HostedAPIBurnSlow",
	"HostedCertificateExpires":         "the vault of the Azure emulator issues certificates for a year",
	"ManyDeletionStepsStuck":           "it needs the deletion of more clusters than the region of a drill has",
	"OperationsBurn3d":                 "no fault is known with which several operations fail within minutes: deadlines are hours",
	"OperationsBurnFast":               "no fault is known with which several operations fail within minutes: deadlines are hours",
	"OperationsBurnSlow":               "no fault is known with which several operations fail within minutes: deadlines are hours",
	"ServingCertificateExpires":        "the vault of the Azure emulator issues certificates for a year",
	"ServingCertificateRenewalOverdue": "certificates are renewed after months",
}

// stuckAfter makes steps of deletions count as stuck soon, on the scale of the drills.
const stuckAfter = `
deletion:
  stuckAfter: {node-pool: 5s, node-pool-publish: 5s}
`

// agentAway deletes all node pools and creates others while the agent is away, and admin, so that no alert names the agent as the cause.
func agentAway(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(r.Dir, configuration)))(t)
	configured := r.Aside(t, configuration, append(text, stuckAfter...))
	release := hold("mgmt-1-maestro-agent", "admin")(t, ctx, r)
	var operations sync.WaitGroup
	for i, name := range pools {
		for _, request := range []func() error{
			func() error { return r.customer.Delete(ctx, r.customer.NodePoolID(first, name)) },
			func() error {
				_, err := r.customer.Put(ctx, r.customer.NodePoolID(first, fmt.Sprintf("later-%d", i)), r.customer.NodePoolBody(1))
				return err
			},
		} {
			operations.Go(func() {
				if err := request(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return func() {
		release()
		operations.Wait()
		configured()
	}
}

// damageSignatures makes Cluster Service verify all releases again, of which one has a damaged signature and one an unreadable folder.
func damageSignatures(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(r.Dir, "releases", "signatures", "*"))
	if err != nil || len(folders) < 2 {
		t.Fatalf("the folders of signatures are %v: %v", folders, err)
	}
	below := func(path string) string { return strings.TrimPrefix(path, r.Dir+"/") }
	damaged := r.Aside(t, below(folders[0])+"/*", []byte("no signature"))
	unreadable := r.Aside(t, below(folders[1]), []byte("no folder"))
	r.sql(t, ctx, "DELETE FROM release_signatures")
	r.restart(t, ctx, "cluster-service")
	return func() {
		damaged()
		unreadable()
		r.restart(t, ctx, "cluster-service")
	}
}

// endingCertificate gives monitor a certificate that ends within hours. The region renews all certificates much later.
func endingCertificate(t *testing.T, _ context.Context, r *region) func() {
	t.Helper()
	issuer := must.Get(mesh.OpenAuthority(filepath.Join(r.Dir, "ca"), local.DefaultTrustDomain))(t)
	issue := func(lifetime time.Duration) {
		if err := issuer.IssueFor(lifetime, r.Endpoints().Identities["monitor"], mesh.Monitor); err != nil {
			t.Error(err)
		}
	}
	issue(5 * time.Hour)
	return func() { issue(local.DefaultCertificateLifetime) }
}

// changeSink adds a line to the chain of admin in the audit sink. The engineer removes it, and restarts the replica, which exports
// nothing until then.
func changeSink(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	chain := r.File(t, "audit/sink/admin-*.jsonl")
	const line = "{}\n"
	file, err := os.OpenFile(chain, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(line)
	must.Do(t, errors.Join(err, file.Close()))
	return func() {
		text, err := os.ReadFile(chain)
		if err == nil {
			err = os.WriteFile(chain, bytes.Replace(text, []byte(line), nil, 1), 0o600)
		}
		if err != nil {
			t.Error(err)
		}
		r.restart(t, ctx, "admin")
	}
}

// elevate requests an elevation and returns it.
func (r *region) elevate(t *testing.T, ctx context.Context, arguments ...string) adminv1.Elevation {
	t.Helper()
	text := r.mustHcpctl(t, ctx, append([]string{"access", "request", "-o", "json"}, arguments...)...)
	var elevation adminv1.Elevation
	if err := json.Unmarshal([]byte(text), &elevation); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return elevation
}

// emergency is an elevation without an approval. It ends, and a second engineer reviews it.
func emergency(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	elevation := r.elevate(t, ctx, "--class", "break-glass", "--emergency", "--reason", "drill of an emergency", "--ticket", "INC-42")
	return func() {
		r.mustHcpctl(t, ctx, "access", "end", elevation.ID)
		r.mustHcpctl(t, ctx, "access", "review", elevation.ID, "--justified", "--comment", "it was a drill", "--as", "approver")
	}
}

// setElevationBack ends an elevation and stores its state before, with the right of the backend to write its document. The end stores its last state
// again.
func setElevationBack(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	elevation := r.elevate(t, ctx, "--class", "operate", "--reason", "drill of a replay", "--ticket", "INC-42")
	endpoints := r.Endpoints()
	db := must.Get(endpoints.OpenStore(ctx, "backend"))(t)
	read := func() *database.Item[database.ElevationDocument] {
		return must.Get(db.Elevations().Get(ctx, database.ElevationKey(elevation.ID)))(t)
	}
	write := func(e database.ElevationDocument) {
		item, batch := read(), db.NewBatch(database.AdminPartition)
		item.Value = e
		database.Replace(batch, item)
		if err := batch.Commit(ctx); err != nil {
			t.Error(err)
		}
	}
	active := read().Value
	r.mustHcpctl(t, ctx, "access", "end", elevation.ID)
	ended := read().Value
	write(active)
	return func() {
		defer db.Close()
		write(ended)
	}
}

// ticketValidatorAway makes the ticket validator fail while an elevation with a validated ticket is active: it cannot read the closed tickets.
func ticketValidatorAway(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	elevation := r.elevate(t, ctx, "--class", "recover", "--reason", "drill of the tickets", "--ticket", "INC-43")
	closed := filepath.Join(r.Dir, "front-door", "closed-tickets")
	must.Do(t, os.Mkdir(closed, 0o700))
	stop := r.repeat(ctx, func(ctx context.Context) {
		_ = r.hcpctl(ctx, "access", "request", "--class", "recover", "--reason", "drill of the tickets", "--ticket", "INC-44")
	})
	return func() {
		stop()
		if err := os.Remove(closed); err != nil {
			t.Error(err)
		}
		r.mustHcpctl(t, ctx, "access", "end", elevation.ID)
	}
}

// damageManagementAudit writes a line that is no event into the audit log of a management cluster.
func damageManagementAudit(t *testing.T, _ context.Context, r *region) func() {
	t.Helper()
	log, err := os.OpenFile(r.File(t, "management/mgmt-1/audit/*.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = log.WriteString("no event\n")
	must.Do(t, errors.Join(err, log.Close()))
	return func() {}
}

// unresolvedNames asks the egress proxy, in the name of a control plane, for connections to a name that does not exist.
func unresolvedNames(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	authority := must.Get(kubeapi.OpenEgressAuthority(filepath.Join(r.Dir, "egress-ca", "mgmt-1")))(t)
	files := must.Get(authority.Issue(t.TempDir(), "drill"))(t)
	certificate := must.Get(tls.LoadX509KeyPair(files.CertificateFile, files.KeyFile))(t)
	trusted := must.Get(os.ReadFile(authority.CAFile()))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	proxy := &url.URL{Scheme: "https"}
	for _, process := range r.Status().Processes {
		if process.Name == "mgmt-1-egress-proxy" {
			proxy.Host = fmt.Sprintf("127.0.0.1:%d", process.Ports["https"])
		}
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	return r.repeat(ctx, func(ctx context.Context) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://missing.invalid", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
}

// stricterKind adds rules to kinds on a management cluster, as a release of HyperShift can. What violates them fails at once at its property, explain
// states that waiting does not help, and nothing of it stays: later changes of the same objects take effect.
func stricterKind(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	kinds := r.management(t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	// change sets the rules of a property of the spec in all versions of a kind; nil removes them.
	change := func(kind string, rules []any, property ...string) error {
		definition, err := kinds.Get(ctx, kind+".hypershift.openshift.io", metav1.GetOptions{})
		if err != nil {
			return err
		}
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			return err
		}
		for _, version := range versions {
			at := append(append([]string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}, property...), "x-kubernetes-validations")
			unstructured.RemoveNestedField(version.(map[string]any), at...)
			if rules == nil {
				continue
			}
			if err := unstructured.SetNestedSlice(version.(map[string]any), rules, at...); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		_, err = kinds.Update(ctx, definition, metav1.UpdateOptions{})
		return err
	}
	claim := []string{"configuration", "properties", "authentication", "properties", "oidcProviders", "items", "properties", "claimMappings", "properties", "username", "properties", "claim"}
	must.Do(t, change("nodepools", []any{map[string]any{"rule": "!('drill' in self)", "message": "drill is not a label"}}, "nodeLabels"))
	must.Do(t, change("hostedclusters", []any{map[string]any{"rule": "self != 'drill'", "message": "drill is not a claim"}}, claim...))
	labelled := func(key string) armresources.GenericResource {
		body := r.customer.NodePoolBody(1)
		body.Properties.(map[string]any)["labels"] = []map[string]any{{"key": key, "value": "stricter"}}
		return body
	}
	refuse := func(id string, body armresources.GenericResource, property string) {
		t.Helper()
		if _, err := r.customer.Put(ctx, id, body); err == nil || !strings.Contains(err.Error(), "DesiredStateRefused") || !strings.Contains(err.Error(), property) {
			t.Errorf("%s: %v", id, err)
		}
	}
	pool, updated := r.customer.NodePoolID(first, "refused"), r.customer.NodePoolID(first, "returned")
	must.Get(r.customer.Put(ctx, updated, r.customer.NodePoolBody(1)))(t)
	refuse(pool, labelled("drill"), "properties.labels")
	refuse(updated, labelled("drill"), "properties.labels")
	if text, err := r.hcpctlOutput(ctx, "explain", r.customer.ClusterID(first)); err != nil || strings.Count(text, "has permanently refused its manifests") != 2 || !strings.Contains(text, "Action for the customer: choose another value of properties.labels") {
		t.Errorf("explain: %v: %s", err, text)
	}
	must.Get(r.customer.Put(ctx, updated, labelled("other")))(t)

	auth, body := r.customer.ExternalAuthID(first, "refused"), r.customer.ExternalAuthBody()
	authority := must.Get(kubeapi.OpenEgressAuthority(filepath.Join(r.Dir, "egress-ca", "mgmt-1")))(t)
	properties := body.Properties.(map[string]any)
	properties["issuer"].(map[string]any)["ca"] = string(must.Get(os.ReadFile(authority.CAFile()))(t))
	properties["claim"].(map[string]any)["mappings"].(map[string]any)["username"].(map[string]any)["claim"] = "drill"
	refuse(auth, body, "properties.claim.mappings.username.claim")
	namespace := r.lookUp(t, ctx, first).Namespace
	eventually.Soon(t, "the certificate authority of the refused external authentication is removed", func() error {
		_, err := r.management(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).Get(ctx, "refused-issuer-ca", metav1.GetOptions{})
		if err == nil {
			return errors.New("it exists")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	must.Get(r.customer.Patch(ctx, r.customer.ClusterID(first), armresources.GenericResource{Properties: map[string]any{"autoscaling": map[string]any{"maxNodesTotal": 99}}}))(t)
	return func() {
		if err := errors.Join(change("nodepools", nil, "nodeLabels"), change("hostedclusters", nil, claim...), r.customer.Delete(ctx, auth), r.customer.Delete(ctx, updated),
			r.customer.Delete(ctx, pool)); err != nil {
			t.Error(err)
		}
	}
}

// management returns a client of the first management cluster with all rights.
func (r *region) management(t *testing.T) dynamic.Interface {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", r.Endpoints().Kubeconfigs["mgmt-1"]))(t)
	return must.Get(dynamic.NewForConfig(config))(t)
}

// removeControlPlane deletes the namespaces of a cluster on its management cluster, several times. The engineer accepts the new control plane.
func removeControlPlane(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	mgmtClient := r.management(t)
	namespace := r.lookUp(t, ctx, first).Namespace
	stop := r.repeat(ctx, func(ctx context.Context) {
		pools := mgmtClient.Resource(schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"}).Namespace(namespace)
		_ = pools.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		clusters := mgmtClient.Resource(schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}).Namespace(namespace)
		_ = clusters.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	return func() {
		stop()
		eventually.Soon(t, "the new control plane is accepted", func() error {
			if r.lookUp(t, ctx, first).Phase == "Ready" {
				return nil
			}
			return r.hcpctl(ctx, "cluster", "accept-control-plane", r.customer.ClusterID(first), "--reason", "drill of a removal", "--ticket", "INC-45")
		})

	}
}

// awaitGrace waits until failures of the clusters' API servers count.
func (r *region) awaitGrace(ctx context.Context) {
	const grace = 15 * time.Minute
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(r.ready.Add(grace))):
	}
}

// repeat runs a function repeatedly until stop is called.
func (r *region) repeat(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			run(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
