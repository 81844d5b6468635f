package app

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// expectEncryption writes a Secret and a ConfigMap to the hosted cluster, and searches all of etcd for their values and for the secrets of
// the control plane.
func (s *sample) expectEncryption(t *testing.T) {
	t.Helper()
	const canary = "canary-0b5d7c1e-in-the-hosted-cluster"
	core := s.hosted(t).CoreV1()
	meta := metav1.ObjectMeta{Namespace: "default", Name: "canary"}
	must.Get(core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": canary}}, metav1.CreateOptions{}))(t)
	must.Get(core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"password": canary}}, metav1.CreateOptions{}))(t)
	secrets := [][]byte{[]byte(canary)}
	var ofControlPlane corev1.SecretList
	must.Do(t, s.client.List(t.Context(), &ofControlPlane))
	found := false
	for _, secret := range ofControlPlane.Items {
		found = found || secret.Namespace == s.controlPlane() && secret.Name == contract.EncryptionKeySecret
		for name, value := range secret.Data {
			if strings.HasSuffix(name, "key") || name == "password" {
				secrets = append(secrets, value, []byte(base64.StdEncoding.EncodeToString(value)))
			}
		}
	}
	if !found || len(secrets) < 5 {
		t.Errorf("the control plane has no encryption key; there are %d secrets to search for", len(secrets))
	}
	encrypted := 0
	for key, value := range s.etcdValues(t, "") {
		for _, secret := range secrets {
			if bytes.Contains(value, secret) {
				t.Errorf("etcd has the value of a secret in clear in %s", key)
			}
		}
		if strings.Contains(key, "/secrets/") || strings.Contains(key, "/configmaps/") {
			encrypted++
			if !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:")) {
				t.Errorf("%s is not encrypted", key)
			}
		}
	}
	if encrypted < 10 {
		t.Errorf("etcd has only %d Secrets and ConfigMaps", encrypted)
	}
}

// expectCanary reads what expectEncryption has written.
func (s *sample) expectCanary(t *testing.T) {
	t.Helper()
	secret, err := s.hosted(t).CoreV1().Secrets("default").Get(t.Context(), "canary", metav1.GetOptions{})
	if err != nil || len(secret.Data["password"]) == 0 {
		t.Errorf("the Secret cannot be read: %v", err)
	}
}
