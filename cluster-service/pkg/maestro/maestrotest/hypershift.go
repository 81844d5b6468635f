package maestrotest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// HyperShift simulates the HyperShift operator: HostedClusters and NodePools become available in a few steps, certificates are
// signed and signers are replaced.
type HyperShift struct {
	// versions are the versions of the release images.
	versions map[string]string

	mu      sync.Mutex
	secrets bool
	holds   bool
	signers map[string]*signer
	upgrades
	// keys are the versions of the encryption keys in use, by HostedCluster.
	keys map[string]string
	// keyless is true while the key vault rejects the keys.
	keyless bool
	// uses is the report of the uses of break-glass credentials, as every HostedCluster has it.
	uses string
}

// NewHyperShift returns a simulated operator. versions maps release images to versions.
func NewHyperShift(versions map[string]string) *HyperShift {
	return &HyperShift{versions: versions, signers: map[string]*signer{}, keys: map[string]string{}, upgrades: newUpgrades()}
}

// ProvideSecrets sets whether the clusters have the secrets of confidential clients. Server.Touch reports it.
func (h *HyperShift) ProvideSecrets(provided bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets = provided
}

// RejectKeys sets whether the key vault rejects the customers' encryption keys. Server.Touch reports it.
func (h *HyperShift) RejectKeys(refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keyless = refused
}

// Hold delays certificate requests, revocations and rotations of encryption keys. They continue after Hold(false) and
// Server.Touch.
func (h *HyperShift) Hold(holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = holds
}

// ReportUses sets the uses of break-glass credentials of every HostedCluster. Server.Touch reports it.
func (h *HyperShift) ReportUses(report hostedreport.CredentialReport) error {
	text, err := report.Encode()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses = text
	return err
}

// Trusts reports whether the current signer of a control plane's class has signed a certificate.
func (h *HyperShift) Trusts(controlPlane, class string, certificate []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	return err == nil && leaf.CheckSignatureFrom(h.signer(controlPlane+"."+class).certificate) == nil
}

// Reconcile is a Reconciler.
func (h *HyperShift) Reconcile(object Object, calls int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch object["kind"] {
	case "NodePool":
		return h.nodePool(object, calls)
	case "HostedCluster":
		return h.hostedCluster(object, calls)
	case "ControlPlaneComponent":
		return h.component(object)
	case "CertificateSigningRequest":
		h.sign(object)
	case "CertificateRevocationRequest":
		return h.revoke(object)
	case "Secret":
		object["data"] = Object{"ca.crt": base64.StdEncoding.EncodeToString(h.signer("root").pem), "ca.key": "never"}
	}
	return false
}

func conditions(triples ...string) []any {
	var list []any
	for triple := range slices.Chunk(triples, 3) {
		list = append(list, Object{"type": triple[0], "status": triple[1], "reason": triple[2], "message": triple[2], "observedGeneration": float64(1)})
	}
	return list
}

func (h *HyperShift) nodePool(object Object, calls int) bool {
	spec := object["spec"].(Object)
	object["metadata"].(Object)["generation"] = float64(1)
	replicas, fixed := spec["replicas"].(float64)
	if !fixed {
		replicas = spec["autoScaling"].(Object)["min"].(float64)
	}
	if calls == 0 {
		object["status"] = Object{"conditions": conditions("Ready", "False", "Creating", "AllMachinesReady", "False", "Creating")}
		return true
	}
	version, again := h.upgradePool(object)
	object["status"] = Object{"replicas": replicas, "version": version,
		"nodesInfo": Object{"nodeVersions": []any{Object{"ocpVersion": version, "readyNodeCount": replicas, "unreadyNodeCount": float64(0)}}},
		"conditions": conditions("Ready", "True", "AsExpected", "AllMachinesReady", "True", "AsExpected", "AllNodesHealthy", "True", "AsExpected",
			"UpdatingVersion", conditionStatus(again), "AsExpected", "UpdatingConfig", "False", "AsExpected", "SupportedVersionSkew", "True", "AsExpected",
			"AutoscalingEnabled", conditionStatus(!fixed), "AsExpected", "AutorepairEnabled", conditionStatus(spec["management"].(Object)["autoRepair"] == true), "AsExpected")}
	return again && !h.held
}

func (h *HyperShift) hostedCluster(object Object, calls int) bool {
	spec := object["spec"].(Object)
	image := spec["release"].(Object)["image"].(string)
	metadata := object["metadata"].(Object)
	metadata["generation"] = float64(1)
	if h.uses != "" {
		metadata["annotations"].(Object)[hostedreport.CredentialAnnotation] = h.uses
	}
	if calls < 2 {
		object["status"] = Object{"conditions": conditions("Available", "False", []string{"WaitingForAvailable", "KubeconfigWaitingForCreate"}[calls]),
			"controlPlaneVersion": Object{"history": []any{Object{"state": "Partial", "image": image, "version": h.versions[image]}}}}
		return true
	}
	history, again := h.upgradeCluster(object)
	status := Object{
		"conditions": conditions("ClusterVersionUpgradeable", conditionStatus(!h.stubborn), "AdminAckRequired", "Available", "True", "AsExpected", "Progressing", "False", "AsExpected", "Degraded", "False", "AsExpected",
			"ValidConfiguration", "True", "AsExpected", "ValidHostedControlPlaneConfiguration", "True", "AsExpected",
			"ReconciliationSucceeded", "True", "ReconciliatonSucceeded"),
		"controlPlaneEndpoint": Object{"host": "127.0.0.1", "port": float64(16443)},
		"kubeconfig":           Object{"name": "admin-kubeconfig"},
		"controlPlaneVersion":  Object{"history": history},
	}
	if configuration, ok := spec["configuration"].(Object); ok && configuration["authentication"] != nil {
		status["configuration"] = Object{"authentication": Object{"oidcClients": h.oidcClients(configuration["authentication"].(Object))}}
	}
	if encryption, ok := spec["secretEncryption"].(Object); ok {
		h.encrypt(object["metadata"].(Object)["name"].(string), encryption, status)
	}
	object["status"] = status
	return again && !h.held
}

// encrypt rotates the encryption key of a cluster and reports it in the operator's conditions.
func (h *HyperShift) encrypt(name string, encryption, status Object) {
	wanted := encryption["kms"].(Object)["azure"].(Object)["activeKey"].(Object)["keyVersion"].(string)
	valid, encrypted := []string{"ValidAzureKMSConfig", "True", "AsExpected"}, []string{"EtcdDataEncryptionUpToDate", "True", "ReEncryptionCompleted"}
	switch {
	case h.keyless:
		valid = []string{"ValidAzureKMSConfig", "False", "AzureError"}
	case h.keys[name] == "" || !h.holds:
		h.keys[name] = wanted
	case h.keys[name] != wanted:
		encrypted = []string{"EtcdDataEncryptionUpToDate", "False", "ReEncryptionInProgress"}
	}
	status["conditions"] = append(status["conditions"].([]any), conditions(append(valid, encrypted...)...)...)
	if key := h.keys[name]; key != "" {
		status["secretEncryption"] = Object{"activeKey": Object{"provider": "Azure", "azure": Object{"keyVersion": key}}}
	}
}

func (h *HyperShift) oidcClients(authentication Object) []any {
	var list []any
	clients, _ := authentication["oidcProviders"].([]any)[0].(Object)["oidcClients"].([]any)
	for _, c := range clients {
		client := c.(Object)
		if client["clientSecret"] == nil {
			continue
		}
		reported := conditions("Available", "True", "OIDCConfigAvailable", "Degraded", "False", "OIDCConfigAvailable")
		if !h.secrets {
			reported = conditions("Available", "Unknown", "Unknown", "Degraded", "True", "OIDCClientSecretGet")
		}
		list = append(list, Object{"componentName": client["componentName"], "componentNamespace": client["componentNamespace"], "conditions": reported})
	}
	return list
}

// sign issues the certificate of a request. The approval is in the same bundle.
func (h *HyperShift) sign(object Object) {
	if h.holds {
		return
	}
	spec := object["spec"].(Object)
	text, err := base64.StdEncoding.DecodeString(spec["request"].(string))
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(text)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	if slices.Contains(request.Subject.OrganizationalUnit, "refused") {
		object["status"] = Object{"conditions": conditions("Approved", "True", "ApprovalPresent", "Failed", "True", "SignerValidationFailure")}
		return
	}
	name := spec["signerName"].(string)
	lifetime := time.Duration(spec["expirationSeconds"].(float64)) * time.Second
	// The certificate is issued once.
	certificate := h.signer(name[len("hypershift.openshift.io/"):]).sign(request, lifetime)
	object["status"] = Object{"conditions": conditions("Approved", "True", "ApprovalPresent"), "certificate": base64.StdEncoding.EncodeToString(certificate)}
}

// revoke replaces a signer.
func (h *HyperShift) revoke(object Object) bool {
	if h.holds {
		object["status"] = Object{"conditions": conditions("SignerClassValid", "True", "AsExpected", "RootCertificatesRegenerated", "False", "RootCertificatesStale")}
		return false
	}
	controlPlane := object["metadata"].(Object)["namespace"].(string)
	delete(h.signers, controlPlane+"."+object["spec"].(Object)["signerClass"].(string))
	object["status"] = Object{"conditions": conditions("SignerClassValid", "True", "AsExpected", "RootCertificatesRegenerated", "True", "AsExpected",
		"NewCertificatesTrusted", "True", "AsExpected", "LeafCertificatesRegenerated", "True", "AsExpected", "PreviousCertificatesRevoked", "True", "AsExpected")}
	return false
}

// signer is a certificate authority.
type signer struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

// signer returns a signer, and creates it if necessary. The caller holds the lock.
func (h *HyperShift) signer(name string) *signer {
	if s := h.signers[name]; s != nil {
		return s
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: signerName(name)}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	s := &signer{key: key, certificate: certificate, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	h.signers[name] = s
	return s
}

// signerName returns the common name that HyperShift gives to a signer, from the control plane and the class.
func signerName(name string) string {
	controlPlane, class, _ := strings.Cut(name, ".")
	return controlPlane + "_" + strings.TrimSuffix(class, "-break-glass") + "-system-admin-signer@" + strconv.FormatInt(time.Now().Unix(), 10)
}

func (s *signer) sign(request *x509.CertificateRequest, lifetime time.Duration) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: request.Subject, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(lifetime), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, request.PublicKey, s.key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
