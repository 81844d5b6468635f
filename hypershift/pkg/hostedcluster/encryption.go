package hostedcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The rotation of the encryption key of etcd's data, as newer releases of HyperShift report it: the API servers read
// with the new key, then write with it, then all data is rewritten. The CustomResourceDefinitions have
// status.secretEncryption; the pinned version of the Go types does not, so this file defines its types.

// encryptionStatus is the type of status.secretEncryption.
type encryptionStatus struct {
	// ActiveKey is the key with which all data is encrypted, TargetKey the key of an unfinished rotation.
	ActiveKey *encryptionKey `json:"activeKey,omitempty"`
	TargetKey *encryptionKey `json:"targetKey,omitempty"`
	// History is newest first.
	History []rotation `json:"history,omitempty"`
}

type encryptionKey struct {
	Provider string   `json:"provider"`
	Azure    azureKey `json:"azure"`
}

type azureKey struct {
	KeyVaultName string `json:"keyVaultName"`
	KeyName      string `json:"keyName"`
	KeyVersion   string `json:"keyVersion"`
}

type rotation struct {
	From           keyReference `json:"from"`
	To             keyReference `json:"to"`
	State          string       `json:"state"`
	StartedTime    metav1.Time  `json:"startedTime"`
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

type keyReference struct {
	Provider    string `json:"provider"`
	Fingerprint string `json:"fingerprint"`
}

// The states of a rotation in their order, and the number of rotations in the history.
const (
	rotationDeploy    = "ReadOnlyDeploy"
	rotationPromote   = "WritePromote"
	rotationMigrate   = "Migrating"
	rotationCompleted = "Completed"

	rotationsKept = 5
)

// etcdDataEncryptionUpToDate is True if all data is encrypted with the key in the spec.
const etcdDataEncryptionUpToDate hyperv1.ConditionType = "EtcdDataEncryptionUpToDate"

func (k *encryptionKey) reference() keyReference {
	text, _ := json.Marshal(k) // strings can always be encoded
	sum := sha256.Sum256(text)
	return keyReference{Provider: k.Provider, Fingerprint: hex.EncodeToString(sum[:])}
}

// encryption is the record of a control plane's encryption, which is stored in a ConfigMap in its namespace.
type encryption struct {
	Status encryptionStatus `json:"status"`
	// Since is when the current state of the newest rotation began.
	Since time.Time `json:"since,omitzero"`
	// Reported is true if this status was written to the objects.
	Reported bool `json:"reported"`
}

// desiredKey returns the key in the spec; nil without a key in a key vault.
func desiredKey(hc *hyperv1.HostedCluster) *encryptionKey {
	if s := hc.Spec.SecretEncryption; s != nil && s.KMS != nil && s.KMS.Azure != nil {
		k := s.KMS.Azure.ActiveKey
		return &encryptionKey{Provider: "Azure", Azure: azureKey{KeyVaultName: k.KeyVaultName, KeyName: k.KeyName, KeyVersion: k.KeyVersion}}
	}
	return nil
}

// advance makes one step of a rotation to the desired key if one is due, and returns the time until the next; zero if
// only an event causes one. A rotation is finished before another one begins.
func (e encryption) advance(desired *encryptionKey, scale schedule.Scale, now time.Time) (next encryption, wait time.Duration) {
	next = encryption{Status: encryptionStatus{ActiveKey: e.Status.ActiveKey, TargetKey: e.Status.TargetKey, History: slices.Clone(e.Status.History)}, Since: e.Since}
	s := &next.Status
	switch {
	case s.ActiveKey == nil:
		s.ActiveKey = desired
		return next, 0
	case s.TargetKey == nil && *s.ActiveKey == *desired:
		return e, 0
	case s.TargetKey == nil:
		s.TargetKey = desired
		s.History = slices.Insert(s.History, 0, rotation{From: s.ActiveKey.reference(), To: desired.reference(), State: rotationDeploy, StartedTime: metav1.NewTime(now)})
		s.History = s.History[:min(len(s.History), rotationsKept)]
		next.Since = now
		return next, neverZero(scale.Of(schedule.KeyDeploy))
	}
	steps := map[string]struct {
		takes time.Duration
		next  string
	}{
		rotationDeploy:  {schedule.KeyDeploy, rotationPromote},
		rotationPromote: {schedule.KeyPromote, rotationMigrate},
		rotationMigrate: {schedule.KeyMigrate, rotationCompleted},
	}
	step := steps[s.History[0].State]
	if left := scale.Of(step.takes) - now.Sub(e.Since); left > 0 {
		return e, left
	}
	s.History[0].State, next.Since = step.next, now
	if step.next == rotationCompleted {
		s.History[0].CompletionTime = &metav1.Time{Time: now}
		s.ActiveKey, s.TargetKey = s.TargetKey, nil
		if *s.ActiveKey != *desired {
			return next, time.Millisecond
		}
		return next, 0
	}
	return next, neverZero(scale.Of(steps[step.next].takes))
}

// neverZero returns a wait that is not zero, which would mean none.
func neverZero(wait time.Duration) time.Duration { return max(wait, time.Millisecond) }

// condition returns the condition for the state of the rotation.
func (e *encryption) condition() (status metav1.ConditionStatus, reason, message string) {
	state := ""
	if len(e.Status.History) > 0 {
		state = e.Status.History[0].State
	}
	switch state {
	case "":
		return metav1.ConditionTrue, "ReEncryptionCompleted", "Encryption key initialized"
	case rotationDeploy:
		return metav1.ConditionFalse, "ReadOnlyRolloutInProgress", "Encryption key rotation started: deploying new key as read-only"
	case rotationPromote:
		return metav1.ConditionFalse, "WritePromotionInProgress", "Promoting new encryption key to write provider"
	case rotationMigrate:
		return metav1.ConditionFalse, "ReEncryptionInProgress", "Re-encrypting etcd data with new encryption key"
	}
	return metav1.ConditionTrue, "ReEncryptionCompleted", "All etcd data is encrypted with the current active key"
}

// setCondition writes the condition, where there is something to say.
func (e *encryption) setCondition(c conditions) {
	if e == nil || e.Status.ActiveKey == nil {
		return
	}
	status, reason, message := e.condition()
	c.set(etcdDataEncryptionUpToDate, status, reason, message)
}

const (
	encryptionRecord    = "secret-encryption"
	encryptionRecordKey = "encryption.json"
)

// readEncryption returns the record; nil if it does not exist.
func (r *Reconciler) readEncryption(ctx context.Context, namespace string) (*encryption, error) {
	var record corev1.ConfigMap
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: encryptionRecord}, &record)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the encryption record: %w", err)
	}
	var e encryption
	if err := json.Unmarshal([]byte(record.Data[encryptionRecordKey]), &e); err != nil {
		return nil, fmt.Errorf("decoding the encryption record: %w", err)
	}
	return &e, nil
}

func (r *Reconciler) writeEncryption(ctx context.Context, hcp *hyperv1.HostedControlPlane, e *encryption) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the encryption record: %w", err)
	}
	data := map[string]string{encryptionRecordKey: string(text)}
	key := client.ObjectKey{Namespace: hcp.Namespace, Name: encryptionRecord}
	var record corev1.ConfigMap
	err = r.Management.Get(ctx, key, &record)
	if apierrors.IsNotFound(err) {
		record = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}}, Data: data}
		return r.Management.Create(ctx, &record, controlPlaneManager)
	}
	if err != nil {
		return fmt.Errorf("reading the encryption record: %w", err)
	}
	base := record.DeepCopy()
	record.Data = data
	if err := r.Management.Patch(ctx, &record, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
		return fmt.Errorf("writing the encryption record: %w", err)
	}
	return nil
}

// rotateEncryption advances the rotation while the API server is available, according to the conditions that this pass has decided, and the
// key vault accepts the key. The record is written before the status.
func (r *Reconciler) rotateEncryption(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, decided []metav1.Condition, o *observation) (time.Duration, error) {
	desired := desiredKey(hc)
	if desired == nil || o.Faults.Has(contract.FaultKMSInvalid) || !meta.IsStatusConditionTrue(decided, string(hyperv1.KubeAPIServerAvailable)) {
		return 0, nil
	}
	before := encryption{}
	if o.Encryption != nil {
		before = *o.Encryption
	}
	next, wait := before.advance(desired, r.Scale, o.Now)
	if !next.Reported && (o.Encryption == nil || before.Reported || before.Since != next.Since) {
		if err := r.writeEncryption(ctx, hcp, &next); err != nil {
			return 0, err
		}
	}
	o.Encryption = &next
	return wait, nil
}

// unstructuredWithEncryption returns an object for an update of its status, with the field that the Go types do not
// have.
func unstructuredWithEncryption(object client.Object, kind string, e *encryption) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(hyperv1.GroupVersion.WithKind(kind))
	if text, err = json.Marshal(e.Status); err != nil {
		return nil, err
	}
	var status map[string]any
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, err
	}
	return u, unstructured.SetNestedMap(u.Object, status, "status", "secretEncryption")
}
