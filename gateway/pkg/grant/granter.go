package grant

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

const (
	// issuing is the part of a session in which its token must be issued.
	issuing = 2 * time.Minute
	// minToken is the shortest validity of a token that an API server issues (TokenRequestSpec.expirationSeconds).
	minToken = 10 * time.Minute
)

// Granter issues tokens for the API server of its cluster.
type Granter interface {
	// Grant returns a token for the signed intent of an engineer. The error of an intent that permits none is an *apierror.Error of the kind
	// PermissionDenied or Invalid.
	Grant(ctx context.Context, request Request) (*Grant, *intent.Intent, error)
	// Address returns host:port of the API server.
	Address() string
}

// IntentVerifier verifies signed intents. *intent.Verifier implements it.
type IntentVerifier interface {
	Verify(ctx context.Context, signed string) (*intent.Intent, error)
}

// Cluster is a cluster that has sessions.
type Cluster struct {
	// Kind is "management cluster" or "service cluster", for people.
	Kind string
	// Action and Target are those of the intents for its sessions.
	Action string
	Target intent.Target
	// Namespace has the service accounts of the sessions, one for each mode.
	Namespace string
}

// ManagementCluster returns the management cluster with a name, which is that of its provision shard.
func ManagementCluster(name string) Cluster {
	return Cluster{Kind: "management cluster", Action: adminv1.ActionShardSessionRequest, Target: intent.Target{Kind: adminv1.TargetShard, ID: name}, Namespace: managementaccess.Tunnel}
}

// ServiceCluster returns the service cluster of a region.
func ServiceCluster() Cluster {
	return Cluster{Kind: "service cluster", Action: adminv1.ActionServiceClusterSessionRequest, Target: intent.Target{Kind: adminv1.TargetServiceCluster, ID: adminv1.ServiceCluster},
		Namespace: string(mesh.GatewayGrants)}
}

// granter issues the tokens of two service accounts, one for each mode of sessions.
type granter struct {
	cluster Cluster
	intents IntentVerifier
	// objects is the client of the API server. It needs no types: those of all groups of Kubernetes would be half of the program.
	objects dynamic.Interface
	// server, address and authorities are those of the API server.
	server, address, authorities string
}

// NewGranter returns a Granter for the API server of a kubeconfig. It accepts intents for the cluster.
func NewGranter(config *rest.Config, cluster Cluster, intents IntentVerifier) (Granter, error) {
	server, err := url.Parse(config.Host)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, fmt.Errorf("the address of the API server %q is not an https URL", config.Host)
	}
	authorities := config.CAData
	if len(authorities) == 0 {
		if authorities, err = os.ReadFile(config.CAFile); err != nil {
			return nil, fmt.Errorf("reading the authority of the API server: %w", err)
		}
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the %s: %w", cluster.Kind, err)
	}
	return &granter{cluster: cluster, intents: intents, objects: objects, server: "https://" + server.Host,
		address: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")), authorities: string(authorities)}, nil
}

// Address implements Granter.
func (g *granter) Address() string { return g.address }

// Grant implements Granter.
func (g *granter) Grant(ctx context.Context, request Request) (*Grant, *intent.Intent, error) {
	asked, err := g.intents.Verify(ctx, request.Intent)
	if err != nil {
		return nil, nil, err
	}
	mode, end, err := g.check(asked, request.Parameters, time.Now())
	if err != nil {
		return nil, nil, err
	}
	account := managementaccess.SessionAccount(mode.Level())
	token, err := g.createToken(ctx, account, max(time.Until(end), minToken))
	if err != nil {
		return nil, nil, apierror.New(apierror.Unavailable, "The API server of the %s does not issue a token for %s.", g.cluster.Kind, account).WithCause(err)
	}
	return &Grant{Token: token, Server: g.server, Authorities: g.authorities, ExpirationTime: end, SessionID: asked.OperationID, ObjectID: asked.ObjectID,
		TenantID: asked.TenantID, ElevationID: asked.Elevation.ID, Mode: mode}, asked, nil
}

// serviceAccounts is the resource of service accounts.
var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// createToken returns a token of a service account.
func (g *granter) createToken(ctx context.Context, account string, validity time.Duration) (string, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"metadata":   map[string]any{"name": account},
		"spec":       map[string]any{"expirationSeconds": int64(validity / time.Second)},
	}}
	issued, err := g.objects.Resource(serviceAccounts).Namespace(g.cluster.Namespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", err
	}
	token, _, err := unstructured.NestedString(issued.Object, "status", "token")
	return token, err
}

// check returns the mode of the session that an intent permits, and when the session ends. All replicas of the gateway present the same intent, so that the
// end depends on nothing else.
func (g *granter) check(asked *intent.Intent, parameters []byte, now time.Time) (mode adminv1.AccessMode, end time.Time, err error) {
	var session adminv1.AccessSessionRequest
	switch {
	case len(parameters) > maxParameters: // its digest would need more memory than all other work
		return "", end, apierror.New(apierror.Invalid, "The parameters of the session have more than %d bytes.", maxParameters)
	case asked.Action != g.cluster.Action:
		return "", end, intent.Mismatch("action")
	case asked.Target != g.cluster.Target:
		return "", end, intent.Mismatch(g.cluster.Kind)
	case !asked.AllowsParameters(parameters):
		return "", end, intent.Mismatch("set of parameters")
	}
	if err := json.Unmarshal(parameters, &session); err != nil {
		return "", end, apierror.New(apierror.Invalid, "The parameters of the session cannot be read.").WithCause(err)
	}
	duration, err := time.ParseDuration(session.Duration)
	level := session.Mode.Level()
	if err != nil || level == "" {
		return "", end, apierror.New(apierror.Invalid, "The session has the mode %q and the duration %q, which are not supported here.", session.Mode, session.Duration).WithCause(err)
	}
	if !level.PermittedBy(adminv1.Role(asked.Elevation.Role)) {
		return "", end, apierror.New(apierror.PermissionDenied, "The mode %s requires an elevation to the role %s; the engineer's is to %s.", session.Mode, level.Role(), asked.Elevation.Role)
	}
	end = asked.IssuedAt.Add(issuing + duration)
	if asked.Elevation.ExpiresAt.Before(end) {
		end = asked.Elevation.ExpiresAt
	}
	if !now.Before(end) {
		return "", end, intent.Expired(asked)
	}
	return session.Mode, end, nil
}
