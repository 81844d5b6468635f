package deletion

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// oncall is the name of the engineer who runs the commands, and the token.
const oncall = "oncall@example.com"

// fakeAuthenticator accepts the token of oncall only.
type fakeAuthenticator struct{}

func (fakeAuthenticator) Authenticate(_ context.Context, r *http.Request) (authn.Caller, error) {
	if r.Header.Get("Authorization") != "Bearer "+oncall {
		return authn.Caller{}, apierror.New(apierror.Unauthenticated, "The request has no token.")
	}
	return authn.Caller{TenantID: "tenant", ObjectID: "object", Name: oncall, Groups: []string{"engineers"}}, nil
}

func (fakeAuthenticator) Ready(context.Context) error { return nil }

// accessPolicy is an access policy that requires no approvals.
func accessPolicy() *elevation.Policy {
	policy := &elevation.Policy{RequestLifetime: elevation.Duration{Duration: time.Hour}, Classes: map[adminv1.AccessClass]elevation.ClassPolicy{}}
	for _, class := range adminv1.AccessClasses() {
		policy.Classes[class] = elevation.ClassPolicy{Ticket: elevation.TicketRequired, Approval: elevation.ApprovalNever, ApproverRole: adminv1.BreakGlass,
			MaxDuration: elevation.Duration{Duration: elevation.MaxDuration}}
	}
	return policy
}

// startAdmin runs admin and the backend's executor of admin operations on the Cosmos DB emulator. Cosmos DB has no documents of
// the clusters.
func (r *region) startAdmin() {
	r.t.Helper()
	db, _ := databasetest.New(r.t)
	bundles := maestro.New("https://"+r.maestro.REST, r.Identity(string(mesh.Admin)))
	r.t.Cleanup(bundles.Close)
	monitor := must.Get(layers.New(layers.Options{Own: server.Questions(db, r.clusterService(mesh.Admin), bundles), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}))(r.t)
	keyset := filepath.Join(r.t.TempDir(), "keyset.json")
	must.Do(r.t, intent.CreateKeys(keyset))
	api := server.New(server.Config{
		Intents: r.intents.Signer,
		Policy:  accessPolicy(), Seals: must.Get(elevation.LoadSealer(keyset))(r.t),
		Database: db, Fleet: r.clusterService(mesh.Admin), Maestro: bundles, Layers: monitor, Environment: "local", Authenticator: fakeAuthenticator{},
		Access: &access.Config{Groups: map[adminv1.Role][]string{adminv1.BreakGlass: {"engineers"}}}, Audit: audittest.New(r.t, "admin", 0), Log: logger(), Metrics: prometheus.NewRegistry(),
	})
	served := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.HasSuffix(request.URL.Path, "/token") {
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": oncall, "expires_in": 3600})
			return
		}
		api.ServeHTTP(w, request)
	}))
	r.t.Cleanup(served.Close)
	r.admin = adminclient.Options{Endpoint: served.URL, Authority: served.URL, CAFile: filepath.Join(r.Dir, "admin.crt"),
		CredentialsFile: filepath.Join(r.Dir, "engineers.json"), Audience: "api://admin"}
	for path, content := range map[string][]byte{
		r.admin.CAFile:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw}),
		r.admin.CredentialsFile: []byte(`[{"name": "` + oncall + `", "tenantId": "t", "clientId": "c", "clientSecret": "s"}]`),
	} {
		must.Do(r.t, os.WriteFile(path, content, 0o600))
	}
	all := func(controller.Group) bool { return true }
	executor := adminoperation.New(db, r.clusterService(mesh.Backend), nil, r.intents.Verifier, all, adminoperation.Options{Audit: audittest.New(r.t, "backend", 0)}, prometheus.NewRegistry(), logger())
	r.Run("backend", func(ctx context.Context) error {
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() { executor.Run(ctx) })
		return db.TailAdmin(ctx, time.Now().Add(-time.Minute), database.FeedOptions{BusyInterval: 10 * time.Millisecond, IdleInterval: 50 * time.Millisecond},
			func(ctx context.Context, changes []database.Change) error {
				for _, change := range changes {
					executor.HandleChange(ctx, change)
				}
				return nil
			})
	})
}

// clusterService returns a client of Cluster Service that follows its address across restarts.
func (r *region) clusterService(peer mesh.Peer) csv1.ClusterServiceClient {
	r.t.Helper()
	conn := must.Get(clusterservice.Dial(r.t.Context(), "cluster-service", r.Identity(string(peer)), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", *r.fleet.Load())
	})))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	return csv1.NewClusterServiceClient(conn)
}

// hcpctl runs `hcpctl deletion` with args and returns its output.
func (r *region) hcpctl(args ...string) string {
	r.t.Helper()
	var out bytes.Buffer
	root := command.NewFor(&out, io.MultiWriter(&out, r.t.Output()), func(adminclient.Options) (*adminclient.Client, error) { return adminclient.New(r.admin) })
	root.SetArgs(append([]string{"deletion"}, args...))
	if err := root.ExecuteContext(r.t.Context()); err != nil {
		r.t.Fatalf("hcpctl deletion %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}
