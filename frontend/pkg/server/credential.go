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
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/credential"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// CredentialReader reads the state and the certificate of a credential from Cluster Service; see package
// clusterservice.
type CredentialReader interface {
	GetCredential(ctx context.Context, uid string) (*clusterservicev1.BreakGlassCredential, error)
}

// credentialTimeout bounds the call to Cluster Service, which is the only store of certificates.
const credentialTimeout = 5 * time.Second

// requestAdminCredential accepts a request for a client certificate of the cluster's administrator. The backend sends
// it to Cluster Service.
func (s *Server) requestAdminCredential(ctx context.Context, rq *request) error {
	document := database.CredentialDocument{
		UID: uuid.NewString(), Requester: rq.requester(), State: database.CredentialPending,
	}
	if err := s.signingRequest(rq, &document); err != nil {
		return err
	}
	err := retrySharedWrite(ctx, database.ClusterKind, func(ctx context.Context) error {
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
				WithRetryAfter(minRetryAfter)
		}
		document.ClusterResourceID, document.ClusterUID = cluster.Value.Cluster.ID, cluster.Value.UID
		key := database.CredentialKey(cluster.Key, document.UID)
		batch := s.Database.NewBatch(key.SubscriptionID)
		database.Create(batch, s.Database.Credentials(), key, document)
		s.addActionOperation(batch, rq, database.RequestCredentialRequest, key, database.CredentialResourceType, document.UID, cluster)
		// The unchanged cluster is written too: the batch then fails if a revocation or the deletion has started, or if
		// another request was accepted that counts as pending.
		database.Replace(batch, cluster)
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	s.setOperationHeaders(rq, document.UID, true)
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// signingRequest sets the certificate signing request of a credential: the caller's, or, at api-versions without one, a
// generated one with its sealed private key.
func (s *Server) signingRequest(rq *request, document *database.CredentialDocument) error {
	decode := rq.version.DecodeAdminCredentialRequest
	if decode == nil {
		key, text, err := credential.NewRequest()
		if err != nil {
			return err
		}
		document.CertificateSigningRequest = string(text)
		document.SealedPrivateKey = s.Sealer.Seal(sealContext(document.UID), key)
		return nil
	}
	fields := map[string]any{}
	if len(rq.body) > 0 {
		var err error
		if fields, err = rq.object(version.AdminCredentialForm()); err != nil {
			return err
		}
	}
	if field := version.UnknownAdminCredentialField(fields); field != "" {
		return apierror.InvalidFields([]apierror.Violation{rq.unknown(field)})
	}
	body := wire.NewBody(fields)
	document.CertificateSigningRequest = decode(body).CertificateSigningRequest
	return apierror.InvalidFields(mergeProblems(body.Problems(),
		credential.CheckRequest("certificateSigningRequest", document.CertificateSigningRequest)))
}

// sealContext returns the context that binds a sealed private key to its credential.
func sealContext(uid string) string { return "private key of admin credential " + uid }

// revokeCredentials starts the revocation of all credentials of the cluster's administrators and cancels pending
// requests.
func (s *Server) revokeCredentials(ctx context.Context, rq *request) error {
	uid := uuid.NewString()
	err := retrySharedWrite(ctx, database.ClusterKind, func(ctx context.Context) error {
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
		s.addActionOperation(batch, rq, database.RevokeCredentialsRequest, database.RevocationKey(cluster.Key, uid), database.RevocationResourceType, uid, cluster)
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	s.setOperationHeaders(rq, uid, true)
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// revocationRetryAfter is the pause that a client is asked for during a revocation, as in the published service.
const revocationRetryAfter = 10 * time.Second

// credentialCluster returns the cluster in the path if its credentials can be requested and revoked now. The cluster
// must match the request's preconditions, be in a terminal state, have an API server and have no revocation in
// progress.
func (s *Server) credentialCluster(ctx context.Context, rq *request) (*database.Item[database.ClusterDocument], error) {
	cluster, err := s.Database.Clusters().Find(ctx, rq.key())
	if err != nil {
		return nil, err
	}
	if live(cluster) == nil {
		return nil, notFound(rq.resourceID)
	}
	rq.adopt(cluster.Value.Cluster.ID)
	if err := rq.preconditions(cluster.ETag); err != nil {
		return nil, err
	}
	conflict := func(format string, args ...any) error {
		return apierror.New(apierror.Conflict, format, args...).WithRetryAfter(minRetryAfter)
	}
	switch {
	case !cluster.Value.ProvisioningState.Terminal():
		return nil, conflict("Cannot request or revoke credentials while resource is %s.", strings.ToLower(string(cluster.Value.ProvisioningState)))
	case cluster.Value.RevocationOperationID != "":
		return nil, apierror.New(apierror.Conflict, "Cannot request or revoke credentials while the credentials of the cluster are being revoked.").
			WithRetryAfter(revocationRetryAfter)
	case cluster.Value.Status.APIURL == "":
		return nil, conflict("Cannot request or revoke credentials while the cluster has no API server.")
	}
	return cluster, nil
}

// addActionOperation adds the operation of an action on a cluster to a batch. The operation's resource has the given
// key and type; its UID is the operation's ID.
func (s *Server) addActionOperation(batch *database.Batch, rq *request, kind database.OperationRequest, key database.Key, resourceType, uid string, cluster *database.Item[database.ClusterDocument]) {
	resource := &hub.Resource{ID: key.ResourceID, Type: resourceType}
	operation := s.newOperation(rq, uid, kind, resource, cluster.Value.UID, cluster.Value.Generation, s.Now().UTC())
	operation.Requester = rq.requester()
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, uid), operation)
}

// maxRequester is the longest name of a requester, in bytes.
const maxRequester = 256

// requester returns the caller's name from ARM, or else its object ID, for the audit trail of credentials.
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

// showCredential returns the kubeconfig of an issued credential. It is assembled from Cluster Service's response for
// each request and not stored.
func (s *Server) showCredential(ctx context.Context, rq *request, operation *database.OperationDocument) error {
	key, err := database.ResourceKey(operation.ResourceID)
	if err != nil {
		return err
	}
	item, err := s.Database.Credentials().Get(ctx, key)
	if err != nil {
		return err
	}
	issued, err := s.issuedCredential(ctx, &item.Value)
	if err != nil {
		return err
	}
	if rq.http.Method == http.MethodHead {
		// The private key is returned once, and a HEAD does not return it.
		rq.w.content(http.StatusOK, nil)
		return nil
	}
	private, err := s.handOutKey(ctx, item)
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

// issuedCredential returns Cluster Service's status of a credential that is valid now.
func (s *Server) issuedCredential(ctx context.Context, document *database.CredentialDocument) (*clusterservicev1.BreakGlassCredentialStatus, error) {
	unusable := func(reason string) error {
		return apierror.New(apierror.Conflict, "The credential was %s.", reason)
	}
	if document.State == database.CredentialRevoked {
		return nil, unusable("revoked")
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
		return nil, unusable("revoked")
	case clusterservice.StateExpired:
		return nil, unusable("issued and has expired")
	default:
		return nil, apierror.New(apierror.Unavailable, "The credential cannot be read yet.").WithRetryAfter(minRetryAfter)
	}
	if !status.GetExpirationTime().AsTime().After(s.Now()) {
		return nil, unusable("issued and has expired")
	}
	return status, nil
}

// handOutKey returns the private key that the service generated for a credential, and removes it from the store first:
// a key is handed out once. The result is nil if only the client has the key.
func (s *Server) handOutKey(ctx context.Context, item *database.Item[database.CredentialDocument]) ([]byte, error) {
	alreadyReturned := apierror.New(apierror.Conflict, "The private key of the credential was returned before, and can be returned only once. Request another credential.")
	if item.Value.KeyHandedOut {
		return nil, alreadyReturned
	}
	if len(item.Value.SealedPrivateKey) == 0 {
		return nil, nil
	}
	private, err := s.Sealer.Open(sealContext(item.Value.UID), item.Value.SealedPrivateKey)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot decrypt the private key of a credential; check that --credential-key-file still contains the key",
			logkey.ResourceID, item.Key.ResourceID, logkey.Error, err)
		return nil, apierror.New(apierror.Conflict, "The private key of the credential cannot be read anymore. Request another credential.")
	}
	item.Value.SealedPrivateKey, item.Value.KeyHandedOut = nil, true
	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	err = batch.Commit(ctx)
	if _, lost := database.AsWriteConflict(err); lost {
		return nil, apierror.New(apierror.Conflict, "The credential is being read or changed by another request.").WithRetryAfter(minRetryAfter)
	}
	return private, err
}
