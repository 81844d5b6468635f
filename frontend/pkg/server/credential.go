package server

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/credential"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// CredentialReader reads from Cluster Service how a credential stands, and its certificate; see package clusterservice.
type CredentialReader interface {
	GetCredential(ctx context.Context, uid string) (*clusterservicev1.BreakGlassCredential, error)
}

// credentialTimeout bounds how long an answer waits for Cluster Service, which alone has the certificate.
const credentialTimeout = 5 * time.Second

// requestAdminCredential asks for a client certificate of the cluster's administrator. The backend has it issued.
func (s *Server) requestAdminCredential(ctx context.Context, rq *request) error {
	document := database.CredentialDocument{
		UID: uuid.NewString(), ClusterResourceID: rq.resourceID, Requester: rq.requester(), State: database.CredentialPending,
	}
	if err := s.signingRequest(rq, &document); err != nil {
		return err
	}
	err := retryBeside(ctx, database.ClusterKind, func(ctx context.Context) error {
		cluster, err := s.credentialCluster(ctx, rq)
		if err != nil {
			return err
		}
		pending, err := s.Database.PendingCredentials(ctx, cluster.Key)
		if err != nil {
			return err
		}
		if len(pending) >= database.MaxPendingCredentials {
			return apierror.New(apierror.Conflict, "Cannot request a credential while %d others of the cluster are pending.", len(pending)).
				WithRetryAfter(leastPollAfter)
		}
		document.ClusterUID = cluster.Value.UID
		key := database.CredentialKey(cluster.Key, document.UID)
		batch := s.Database.NewBatch(key.SubscriptionID)
		database.Create(batch, s.Database.Credentials(), key, document)
		s.startAction(batch, rq, database.RequestCredentialRequest, key, database.CredentialResourceType, document.UID, cluster)
		// Writing the cluster as it is makes the batch fail if a revocation or the deletion has started, and keeps count of
		// what is pending.
		database.Replace(batch, cluster)
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	s.follow(rq, document.UID, true)
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// signingRequest puts the certificate signing request into a credential: the caller's, or in api-versions that take none
// one of the service's own, with its key sealed.
func (s *Server) signingRequest(rq *request, document *database.CredentialDocument) error {
	decode := rq.version.DecodeAdminCredentialRequest
	if decode == nil {
		key, text, err := credential.NewRequest()
		if err != nil {
			return err
		}
		document.CertificateSigningRequest = string(text)
		document.SealedPrivateKey = s.Sealer.Seal(sealedFor(document.UID), key)
		return nil
	}
	fields := map[string]any{}
	if len(rq.body) > 0 {
		var err error
		if fields, err = rq.object(); err != nil {
			return err
		}
	}
	body := wire.NewBody(fields)
	document.CertificateSigningRequest = decode(body).CertificateSigningRequest
	return apierror.InvalidFields(combine(body.Problems(),
		credential.CheckRequest("certificateSigningRequest", document.CertificateSigningRequest)))
}

// sealedFor is the purpose that a credential's private key is sealed for: it opens for no other credential.
func sealedFor(uid string) string { return "private key of admin credential " + uid }

// revokeCredentials starts the revocation of all credentials of the cluster's administrators, and cancels what is pending.
func (s *Server) revokeCredentials(ctx context.Context, rq *request) error {
	uid := uuid.NewString()
	err := retryBeside(ctx, database.ClusterKind, func(ctx context.Context) error {
		cluster, err := s.credentialCluster(ctx, rq)
		if err != nil {
			return err
		}
		now := s.Now().UTC()
		batch := s.Database.NewBatch(cluster.Key.SubscriptionID)
		pending, err := s.Database.PendingCredentials(ctx, cluster.Key)
		if err != nil {
			return err
		}
		for _, item := range pending {
			if err := s.Database.Supersede(ctx, batch, item.Value.UID, "The operation was superseded by the revocation of the cluster's credentials.", now); err != nil {
				return err
			}
			item.Value.State, item.Value.SealedPrivateKey = database.CredentialCanceled, nil
			database.Replace(batch, item)
		}
		cluster.Value.RevocationOperationID = uid
		database.Replace(batch, cluster)
		s.startAction(batch, rq, database.RevokeCredentialsRequest, database.RevocationKey(cluster.Key, uid), database.RevocationResourceType, uid, cluster)
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	s.follow(rq, uid, true)
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// credentialCluster reads the cluster in the path, if its credentials can be asked for and revoked now: when it is the one
// that the request's conditions speak of, stands still, has an API server, and no revocation is under way.
func (s *Server) credentialCluster(ctx context.Context, rq *request) (*database.Item[database.ClusterDocument], error) {
	cluster, err := s.Database.Clusters().Find(ctx, rq.key())
	if err != nil {
		return nil, err
	}
	if live(cluster) == nil {
		return nil, notFound(rq.resourceID)
	}
	if err := rq.preconditions(cluster.ETag); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) error {
		return apierror.New(apierror.Conflict, format, args...).WithRetryAfter(leastPollAfter)
	}
	switch {
	case !cluster.Value.ProvisioningState.Terminal():
		return nil, refuse("Cannot request or revoke credentials while resource is %s.", strings.ToLower(string(cluster.Value.ProvisioningState)))
	case cluster.Value.RevocationOperationID != "":
		return nil, refuse("Cannot request or revoke credentials while the credentials of the cluster are being revoked.")
	case cluster.Value.Status.APIURL == "":
		return nil, refuse("Cannot request or revoke credentials while the cluster has no API server.")
	}
	return cluster, nil
}

// startAction adds the operation of an action on a cluster to a batch: what it works on has the key and the type, and its
// uid is the operation's id.
func (s *Server) startAction(batch *database.Batch, rq *request, kind database.OperationRequest, key database.Key, resourceType, uid string, cluster *database.Item[database.ClusterDocument]) {
	resource := &hub.Resource{ID: key.ResourceID, Type: resourceType}
	operation := s.newOperation(rq, uid, kind, resource, cluster.Value.UID, cluster.Value.Generation, s.Now().UTC())
	operation.Requester = rq.requester()
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, uid), operation)
}

// maxRequester bounds the name of a caller, in bytes.
const maxRequester = 256

// requester names the caller for the record: by the name that ARM gives, or else by the id.
func (rq *request) requester() string {
	for _, name := range []string{rq.http.Header.Get(armheader.ClientPrincipalName), rq.clientID} {
		name = strings.TrimSpace(strings.ToValidUTF8(name, ""))
		for len(name) > maxRequester {
			_, size := utf8.DecodeLastRuneInString(name)
			name = name[:len(name)-size]
		}
		if name != "" {
			return name
		}
	}
	return "unknown"
}

// showCredential answers with the kubeconfig of a credential that was issued. It is put together for this answer, of what
// Cluster Service says, and is kept nowhere.
func (s *Server) showCredential(ctx context.Context, rq *request, operation *database.OperationDocument) error {
	key, err := database.ResourceKey(operation.ResourceID)
	if err != nil {
		return err
	}
	item, err := s.Database.Credentials().Get(ctx, key)
	if err != nil {
		return err
	}
	issued, err := s.issued(ctx, &item.Value)
	if err != nil {
		return err
	}
	private, err := s.takeKey(ctx, item)
	if err != nil {
		return err
	}
	clusterID := item.Value.ClusterResourceID
	kubeconfig, err := credential.Kubeconfig(credential.Access{
		Cluster: clusterID[strings.LastIndexByte(clusterID, '/')+1:], APIURL: issued.GetApiUrl(),
		ServingCA: issued.GetServingCertificateAuthority(), Certificate: issued.GetCertificate(), Key: private,
	})
	if err != nil {
		return err
	}
	rq.w.Header().Set("Cache-Control", "no-store")
	return rq.w.json(http.StatusOK, rq.version.EncodeAdminCredential(&hub.AdminCredential{
		Kubeconfig: kubeconfig, ExpirationTimestamp: issued.GetExpirationTime().AsTime(),
	}))
}

// issued is what Cluster Service says of a credential that can be used.
func (s *Server) issued(ctx context.Context, document *database.CredentialDocument) (*clusterservicev1.BreakGlassCredentialStatus, error) {
	gone := func(how string) error {
		return apierror.New(apierror.Conflict, "The credential was %s.", how)
	}
	if document.State == database.CredentialRevoked {
		return nil, gone("revoked")
	}
	ctx, cancel := context.WithTimeout(ctx, credentialTimeout)
	defer cancel()
	credential, err := s.Credentials.GetCredential(ctx, document.UID)
	if err != nil {
		return nil, err
	}
	report, err := clusterservice.CredentialReport(credential)
	if err != nil {
		return nil, err
	}
	status := credential.GetStatus()
	switch report.Phase {
	case clusterservice.StateIssued:
	case clusterservice.StateAwaitingRevocation, clusterservice.StateRevoked:
		return nil, gone("revoked")
	case clusterservice.StateExpired:
		return nil, gone("issued and has expired")
	default:
		return nil, apierror.New(apierror.Unavailable, "The credential cannot be read yet.").WithRetryAfter(leastPollAfter)
	}
	if !status.GetExpirationTime().AsTime().After(s.Now()) {
		return nil, gone("issued and has expired")
	}
	return status, nil
}

// takeKey is the private key of a credential whose key the service made, which it hands out once: it is removed from the
// store before it is answered with. Empty for one whose key only its client has.
func (s *Server) takeKey(ctx context.Context, item *database.Item[database.CredentialDocument]) ([]byte, error) {
	handedOut := apierror.New(apierror.Conflict, "The private key of the credential was handed out before, which happens once. Request another credential.")
	if item.Value.KeyHandedOut {
		return nil, handedOut
	}
	if len(item.Value.SealedPrivateKey) == 0 {
		return nil, nil
	}
	private, err := s.Sealer.Open(sealedFor(item.Value.UID), item.Value.SealedPrivateKey)
	if err != nil {
		s.Log.Warn("the private key of a credential cannot be opened; was a key of --credential-key-file removed?",
			"resource_id", item.Key.ResourceID, "error", err)
		return nil, apierror.New(apierror.Conflict, "The private key of the credential cannot be read any more. Request another credential.")
	}
	item.Value.SealedPrivateKey, item.Value.KeyHandedOut = nil, true
	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	err = batch.Commit(ctx)
	if _, lost := database.AsWriteConflict(err); lost {
		return nil, apierror.New(apierror.Conflict, "The credential is being read or changed by another request.").WithRetryAfter(leastPollAfter)
	}
	return private, err
}
