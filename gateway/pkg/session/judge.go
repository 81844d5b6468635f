package session

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// credential is what a Registry keeps of a break-glass credential of an SRE.
type credential struct {
	cluster, elevation string
	level              clusterservicev1.BreakGlassLevel
	state              clusterservicev1.BreakGlassCredentialState
	// certificate is PEM. elevationEnd is the end of the elevation in the engineer's signed intent.
	certificate           string
	elevationEnd, created time.Time
}

// cluster is what a Registry keeps of a cluster.
type cluster struct {
	endpoint endpoint
	deleting bool
}

// endpoint is what is known of an API server.
type endpoint struct {
	// authorities verify the certificate of the server. PEM.
	url, authorities string
	// managementCluster is the management cluster that hosts the cluster. clusterID identifies the cluster there.
	managementCluster, clusterID string
	// restricted is set if the API server does not accept connections from everywhere.
	restricted bool
}

// facts is what a verdict about a session depends on. known reports whether all credentials and clusters were read from Cluster Service;
// until then a missing one means nothing.
type facts struct {
	credential *credential
	cluster    *cluster
	known      bool
	now        time.Time
}

// verdict is the state that a session must have.
type verdict struct {
	// end is the reason why it ends; empty if it does not end now. forged is set if the reason is that the credential or the token authorizes another session.
	end    string
	forged bool
	// deadline is when it ends by time.
	deadline time.Time
	// expiration is when the credential or the token expires; zero before it was issued.
	expiration time.Time
	// endpoint is set when it is ready, with certificate and fingerprint for a cluster, or token for a management cluster.
	endpoint    endpoint
	certificate *tls.Certificate
	fingerprint string
	token       string
}

// laterThanRevocation is added to the reason of a session whose certificate was not issued in time.
const laterThanRevocation = ". If the credentials of another elevation are being revoked, open another session after that: `hcpctl explain` shows it"

// judge decides about a session for a cluster. It compares s, which the requests of the session use, with the credential. The document contributes only its
// deadlines and its keys. open opens the private keys of the session, and is called only when its certificate was issued.
func judge(s *Session, document *database.AccessSessionDocument, f facts, open func(sealed []byte) ([]byte, error)) verdict {
	v := verdict{deadline: document.ElevationExpirationTime}
	limit := func(at time.Time) {
		if at.Before(v.deadline) {
			v.deadline = at
		}
	}
	switch {
	case s.Mode.Level() == "":
		v.end = fmt.Sprintf("the gateway does not support the mode %q", s.Mode)
		return v
	case f.cluster == nil && f.known:
		v.end = "the cluster does not exist"
		return v
	case f.cluster != nil && f.cluster.deleting:
		v.end = "the cluster is being deleted"
		return v
	case f.credential == nil:
		limit(document.RequestExpirationTime)
		if !f.now.Before(v.deadline) {
			v.end = "its certificate was not requested in time" + laterThanRevocation
		}
		return v
	}
	limit(f.credential.elevationEnd)
	switch f.credential.state {
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:
		limit(document.RequestExpirationTime)
		if !f.now.Before(v.deadline) {
			v.end = "the control plane has not signed its certificate in time" + laterThanRevocation
		}
		return v
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:
		v.end = "its credential was revoked"
		return v
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED:
		v.end = "its certificate has expired"
		return v
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
		v.end = "its request was canceled before the control plane signed it, because the credentials of its elevation or of all engineers were revoked. " +
			"Open another session, with another elevation if yours has ended"
		return v
	default:
		v.end = "the control plane did not issue its certificate"
		return v
	}
	leaf, err := leafOf(f.credential)
	if err != nil {
		v.end = err.Error()
		return v
	}
	if v.end = difference(s, f.credential, leaf); v.end != "" {
		v.forged = true
		return v
	}
	certificate, err := withKey(leaf, document.SealedKeys, open)
	if err != nil {
		v.end = err.Error()
		return v
	}
	limit(certificate.Leaf.NotAfter)
	v.expiration = certificate.Leaf.NotAfter
	if !f.now.Before(v.deadline) {
		v.end = "its certificate or its elevation has expired"
		return v
	}
	if f.cluster != nil && f.cluster.endpoint.url != "" && f.cluster.endpoint.authorities != "" {
		sum := sha256.Sum256(certificate.Leaf.Raw)
		v.certificate, v.fingerprint, v.endpoint = certificate, hex.EncodeToString(sum[:]), f.cluster.endpoint
	}
	return v
}

// levels are the levels of Cluster Service's API. An unspecified level is none of a session.
var levels = map[clusterservicev1.BreakGlassLevel]adminv1.Level{
	clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER: adminv1.LevelReader,
	clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN:  adminv1.LevelAdmin,
}

// leafOf returns the certificate of a credential. Errors contain no part of it.
func leafOf(c *credential) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(c.certificate))
	if block == nil {
		return nil, errors.New("its certificate cannot be read")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("its certificate cannot be read")
	}
	return leaf, nil
}

// difference returns how a session differs from what its credential and the certificate authorize, for people; empty if they agree. Cluster Service has verified
// both with the signed intent of the engineer.
func difference(s *Session, c *credential, leaf *x509.Certificate) string {
	level := s.Mode.Level()
	switch {
	case c.cluster != s.ClusterUID:
		return "its credential is for another cluster"
	case c.elevation != s.Owner.ElevationID:
		return "its credential was requested with another elevation"
	case levels[c.level] != level, !slices.Equal(leaf.Subject.Organization, []string{level.Organization()}):
		return "its credential has another level"
	case leaf.Subject.CommonName != hostedreport.EngineerPrefix+s.Owner.ObjectID:
		return "its certificate names another engineer"
	}
	return ""
}

// withKey returns a certificate with its private key, which is one of the sealed ones. Errors contain no part of a key.
func withKey(leaf *x509.Certificate, sealedKeys [][]byte, open func(sealed []byte) ([]byte, error)) (*tls.Certificate, error) {
	for _, sealed := range sealedKeys {
		opened, err := open(sealed)
		if err != nil {
			continue
		}
		key, _ := pem.Decode(opened)
		if key == nil {
			continue
		}
		parsed, err := x509.ParsePKCS8PrivateKey(key.Bytes)
		signer, ok := parsed.(crypto.Signer)
		if err != nil || !ok {
			continue
		}
		if public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool }); ok && public.Equal(leaf.PublicKey) {
			return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: parsed, Leaf: leaf}, nil
		}
	}
	return nil, errors.New("the gateway has no key for its certificate")
}
