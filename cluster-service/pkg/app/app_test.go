package app_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// TestProcess runs the process with mTLS, its files, and a database that becomes available after the start. The log must
// not contain a secret.
func TestProcess(t *testing.T) {
	r := newRegion(t)
	r.play()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	authority := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), intenttest.TrustDomain))(t)
	identities := map[mesh.Peer]*mesh.Identity{}
	for _, peer := range []mesh.Peer{mesh.ClusterService, mesh.Backend, mesh.Frontend, mesh.Admin, mesh.MaestroAgent} {
		must.Do(t, authority.Issue(filepath.Join(dir, string(peer)), peer, "127.0.0.1"))
		identities[peer] = must.Get(mesh.LoadIdentity(filepath.Join(dir, string(peer))))(t)
	}
	database := mustParse(t, r.url)
	databaseProxy, maestroProxy := netfault.StartProxy(t, database.Host), netfault.StartProxy(t, r.maestro.Address)
	database.Host = databaseProxy.Address
	databaseProxy.Disconnect()

	options := &app.Options{}
	flags := flag.NewFlagSet("cluster-service", flag.ContinueOnError)
	options.AddFlags(flags)
	admin := intenttest.New(t)
	keys := filepath.Join(dir, "shard-keys")
	must.Do(t, errors.Join(os.Mkdir(keys, 0o700), seal.CreatePair(filepath.Join(dir, "agent.json"), filepath.Join(keys, "mgmt-1.json"))))
	const pullSecret = "aHVudGVyMjpwYXNzd29yZA=="
	must.Do(t, flags.Parse(slices.Concat(signReleases(t, dir), []string{"--listen=127.0.0.1:0", "--intent-keys-url=" + serveIntentKeys(t, identities[mesh.Admin], admin), "--identity-dir=" + filepath.Join(dir, "cluster-service"),
		"--database-url-file=" + write("url", database.String()+"\n"), "--secrets-key-file=" + filepath.Join(dir, "secrets.key"),
		"--maestro-grpc-address=" + maestroProxy.Address, "--maestro-plaintext", "--api-url-source=endpoint", "--region=westus3", "--developer",
		"--shards-file=" + write("shards.yaml", "provisionShards: [{name: mgmt-1, capacity: 5}]"), "--shard-keys-dir=" + keys,
		"--audit-queue-dir=" + filepath.Join(dir, "audit", "queue"), "--audit-sink-dir=" + filepath.Join(dir, "audit", "sink"),
		"--audit-witness-dir=" + filepath.Join(dir, "audit", "witness"), "--audit-signing-key-file=" + auditKey(t, dir),
		"--config=" + write("config.yaml", "pullSecretFile: "+write("pull.json", `{"auths":{"quay.io":{"auth":"`+pullSecret+`"}}}`))})))
	must.Do(t, options.Validate())

	var logged logtest.Log
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	ctx, cancel := context.WithCancel(context.Background())
	p := process.New("cluster-service", slog.Default())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, p, options) }()

	untilDone(t, func(context.Context) error {
		if !strings.Contains(logged.String(), "waiting for the database") {
			return errors.New("nothing was said of the database")
		}
		return nil
	})
	if readiness := p.CheckReadiness(ctx); readiness.Ready || readiness.NotReady["postgresql"] == "" {
		t.Errorf("readiness without a database is %+v", readiness)
	}
	databaseProxy.Continue()

	var address string
	eventually.Soon(t, "the API is served", func() error {
		for line := range strings.Lines(logged.String()) {
			var served struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &served) == nil && served.Msg == "serving the API" {
				address = served.Address
				return nil
			}
		}
		return fmt.Errorf("the log is %s", &logged)
	})
	connect := func(peer mesh.Peer) csv1.ClusterServiceClient {
		conn := must.Get(grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(identities[peer].ClientTLS(mesh.ClusterService)))))(t)
		t.Cleanup(func() { _ = conn.Close() })
		return csv1.NewClusterServiceClient(conn)
	}
	backend := &instance{ClusterServiceClient: connect(mesh.Backend)}
	request := applyRequest("c", 1)
	untilDone(t, func(ctx context.Context) error { _, err := backend.ApplyCluster(ctx, request); return err })
	backend.awaitCluster(t, request.Uid, clusterReady(1))
	untilDone(t, func(ctx context.Context) error {
		if readiness := p.CheckReadiness(ctx); !readiness.Ready {
			return errors.New(readiness.NotReady["maestro"] + readiness.NotReady["postgresql"])
		}
		return nil
	})
	for dependency, proxy := range map[string]*netfault.Proxy{"maestro": maestroProxy, "postgresql": databaseProxy} {
		proxy.Hang()
		eventually.Soon(t, "readiness names the hung "+dependency, func() error {
			readiness := p.CheckReadiness(ctx)
			if want := map[string]string{dependency: "does not respond within 2s"}; !maps.Equal(readiness.NotReady, want) {
				return fmt.Errorf("readiness is %+v", readiness)
			}
			return nil
		})
		proxy.Continue()
		untilDone(t, func(ctx context.Context) error {
			if readiness := p.CheckReadiness(ctx); !readiness.Ready {
				return fmt.Errorf("%v", readiness.NotReady)
			}
			return nil
		})
	}
	if _, err := connect(mesh.MaestroAgent).ListClusters(ctx, &csv1.ListClustersRequest{}); err == nil {
		t.Error("a call with the identity of an agent succeeded")
	}
	requestSREAccess(t, backend, connect(mesh.Frontend), admin, request, &logged)

	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the process returned %v", err)
	}
	password, _ := mustParse(t, r.url).User.Password()
	for _, secret := range []string{"PRIVATE KEY", pullSecret, "dockerconfigjson", password} {
		if secret != "" && strings.Contains(logged.String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}

// requestSREAccess requests a credential of class sre with the identity of the frontend, in the name of an engineer who does not
// know of it. The request must be refused and audited, and nothing may be stored. The same request of the backend is accepted with
// the engineer's intent.
func requestSREAccess(t *testing.T, backend *instance, frontend csv1.ClusterServiceClient, admin *intenttest.Admin, cluster *csv1.ApplyClusterRequest, logged *logtest.Log) {
	t.Helper()
	request := credentialRequest(t, cluster, sre)
	if _, err := frontend.ApplyBreakGlassCredential(t.Context(), request); status.Code(err) != codes.PermissionDenied || reasonOf(err) != mesh.ReasonNotAuthorized {
		t.Errorf("the frontend requested a credential of class sre: %v", err)
	}
	list, err := backend.ListBreakGlassCredentials(t.Context(), &csv1.ListBreakGlassCredentialsRequest{ClusterUid: cluster.Uid})
	if err != nil || len(list.GetCredentials()) != 0 {
		t.Errorf("Cluster Service stored %v, %v", list.GetCredentials(), err)
	}
	if _, err := backend.ApplyBreakGlassCredential(t.Context(), request); status.Code(err) != codes.PermissionDenied || reasonOf(err) != mesh.ReasonNotAuthorized {
		t.Errorf("the backend requested a credential without an intent: %v", err)
	}
	asked := intent.AppendToOutgoingContext(t.Context(), admin.Call(t, csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName, request))
	if _, err := backend.ApplyBreakGlassCredential(asked, request); err != nil {
		t.Errorf("the backend may not request a credential: %v", err)
	}
	audited := func(client, action, outcome string) bool {
		for line := range strings.Lines(logged.String()) {
			var r struct{ Record, Client, Action, Outcome string }
			if json.Unmarshal([]byte(line), &r) == nil && r.Record == "audit" && r.Client == client && r.Action == action && r.Outcome == outcome {
				return true
			}
		}
		return false
	}
	awaitCondition(t, "the refusal of the frontend's request is audited", func() bool {
		return audited("frontend", csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName, "refused")
	})
	awaitCondition(t, "the audit record of the credential names the backend", func() bool { return audited("backend", "credentials.requested", "") })
}

// serveIntentKeys serves the keys of intents with the identity of admin, and returns their URL.
func serveIntentKeys(t *testing.T, identity *mesh.Identity, admin *intenttest.Admin) string {
	t.Helper()
	config := identity.ServerTLS()
	config.ClientAuth, config.VerifyConnection = tls.NoClientCert, nil
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", config))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(admin.Signer.KeySet()) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "https://" + listener.Addr().String()
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	return must.Get(url.Parse(text))(t)
}

// auditKey creates a signing key in a folder and returns its file.
func auditKey(t *testing.T, dir string) string {
	t.Helper()
	key := must.Get(audit.GenerateKey())(t)
	path := filepath.Join(dir, "audit.key")
	must.Do(t, key.Create(path))
	return path
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	required := []string{"--identity-dir=x", "--intent-keys-url=https://admin/admin/v1/intent-keys", "--database-url-file=x", "--secrets-key-file=x", "--maestro-grpc-address=x", "--shards-file=x", "--shard-keys-dir=x",
		"--audit-queue-dir=q", "--audit-sink-dir=s", "--audit-witness-dir=w", "--audit-signing-key-file=k"}
	tests := map[string]struct {
		reason string
		flags  []string
		want   string
	}{
		"Good":        {"all that is required", nil, ""},
		"Environment": {"it is part of names of at most 63 characters", []string{"--environment=arohcpproduction"}, "--environment"},
		"Issuer":      {"issuers are https", []string{"--oidc-issuer-base=http://x"}, "--oidc-issuer-base"},
		"URL source":  {"there are two", []string{"--api-url-source=guess"}, "--api-url-source"},
		"Connections": {"a transaction and a scan", []string{"--database-connections=1"}, "--database-connections"},
		"Intents":     {"keys come from a server with admin's identity", []string{"--intent-keys-url=http://admin/keys"}, "--intent-keys-url"},
		"Audit":       {"the witness is other storage", []string{"--audit-witness-dir=s"}, "--audit-witness-dir"},
		"Shards":      {"it is required", []string{"--shards-file="}, "--shards-file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			options := &app.Options{}
			flags := flag.NewFlagSet("cluster-service", flag.ContinueOnError)
			options.AddFlags(flags)
			must.Do(t, flags.Parse(append(required, tc.flags...)))
			err := options.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want an error with %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}
