package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
)

const (
	// issuing is the part of a session in which its token must be issued.
	issuing = 2 * time.Minute
	// minToken is the shortest validity of a token that an API server issues (TokenRequestSpec.expirationSeconds).
	minToken = 10 * time.Minute
)

// Granter issues tokens for the API server of the management cluster.
type Granter interface {
	// Grant returns a token for the signed intent of an engineer. The error of an intent that permits none is an *apierror.Error of the kind
	// PermissionDenied or Invalid.
	Grant(ctx context.Context, request tunnel.GrantRequest) (*tunnel.Grant, *intent.Intent, error)
	// Address returns host:port of the API server.
	Address() string
}

// IntentVerifier verifies signed intents. *intent.Verifier implements it.
type IntentVerifier interface {
	Verify(ctx context.Context, signed string) (*intent.Intent, error)
}

// grant serves the request of the gateway for a token.
func (a *Agent) grant(w http.ResponseWriter, r *http.Request) {
	if a.Granter == nil {
		http.Error(w, "The management cluster has no sessions: its agent has no --intent-keys-file.", http.StatusNotImplemented)
		return
	}
	var request tunnel.GrantRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, tunnel.MaxGrantBody)).Decode(&request); err != nil {
		http.Error(w, "The body is not a request for a token.", http.StatusBadRequest)
		return
	}
	grant, asked, err := a.Granter.Grant(r.Context(), request)
	if err != nil {
		e, outcome := apierror.As(err), outcomeFailed
		if e.Kind == apierror.PermissionDenied || e.Kind == apierror.Invalid {
			outcome = outcomeRefused
		}
		a.grants.WithLabelValues(outcome).Inc()
		a.Log.WarnContext(r.Context(), "no token was issued for the management cluster", logkey.Outcome, outcome, logkey.Error, err)
		http.Error(w, e.Message, e.Kind.HTTPStatus())
		return
	}
	a.grants.WithLabelValues(outcomeIssued).Inc()
	a.Log.InfoContext(r.Context(), "a token was issued for the management cluster", logkey.OperationID, asked.OperationID, logkey.Actor, asked.Engineer(), logkey.ObjectID, asked.ObjectID,
		logkey.Reason, asked.Reason, logkey.Ticket, asked.Ticket)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(grant) // the gateway repeats the request if it does not get the response
}

// kubernetesGranter issues the tokens of two service accounts, one for each mode of sessions.
type kubernetesGranter struct {
	managementCluster string
	intents           IntentVerifier
	objects           kubernetes.Interface
	// server, address and authorities are those of the API server.
	server, address, authorities string
}

// NewGranter returns a Granter for the API server of a kubeconfig. The intents that it accepts are for the management cluster with a name.
func NewGranter(config *rest.Config, managementCluster string, intents IntentVerifier) (Granter, error) {
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
	objects, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	return &kubernetesGranter{managementCluster: managementCluster, intents: intents, objects: objects, server: "https://" + server.Host,
		address: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")), authorities: string(authorities)}, nil
}

// Address implements Granter.
func (k *kubernetesGranter) Address() string { return k.address }

// Grant implements Granter.
func (k *kubernetesGranter) Grant(ctx context.Context, request tunnel.GrantRequest) (*tunnel.Grant, *intent.Intent, error) {
	asked, err := k.intents.Verify(ctx, request.Intent)
	if err != nil {
		return nil, nil, err
	}
	mode, end, err := k.check(asked, request.Parameters, time.Now())
	if err != nil {
		return nil, nil, err
	}
	seconds := int64(max(time.Until(end), minToken) / time.Second)
	account := managementaccess.SessionAccount(mode.Level())
	issued, err := k.objects.CoreV1().ServiceAccounts(managementaccess.Tunnel).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, apierror.New(apierror.Unavailable, "The API server of the management cluster does not issue a token for %s.", account).WithCause(err)
	}
	return &tunnel.Grant{Token: issued.Status.Token, Server: k.server, Authorities: k.authorities, ExpirationTime: end, SessionID: asked.OperationID, ObjectID: asked.ObjectID,
		TenantID: asked.TenantID, ElevationID: asked.Elevation.ID, Mode: mode}, asked, nil
}

// check returns the mode of the session that an intent permits, and when the session ends. All replicas of the gateway present the same intent, so that the
// end depends on nothing else.
func (k *kubernetesGranter) check(asked *intent.Intent, parameters []byte, now time.Time) (mode adminv1.AccessMode, end time.Time, err error) {
	var session adminv1.AccessSessionRequest
	switch target := (intent.Target{Kind: adminv1.TargetShard, ID: k.managementCluster}); {
	case asked.Action != adminv1.ActionShardSessionRequest:
		return "", end, intent.Mismatch("action")
	case asked.Target != target:
		return "", end, intent.Mismatch("management cluster")
	case !asked.AllowsParameters(parameters):
		return "", end, intent.Mismatch("set of parameters")
	}
	if err := json.Unmarshal(parameters, &session); err != nil {
		return "", end, apierror.New(apierror.Invalid, "The parameters of the session cannot be read.").WithCause(err)
	}
	duration, err := time.ParseDuration(session.Duration)
	level := session.Mode.Level()
	if err != nil || level == "" {
		return "", end, apierror.New(apierror.Invalid, "The session has the mode %q and the duration %q, which this agent does not support.", session.Mode, session.Duration).WithCause(err)
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
