package feedback_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// decode decodes the status of a bundle with one manifest that reports values.
func decode(t *testing.T, values ...any) *feedback.Observed {
	t.Helper()
	return decodeManifests(t, map[string]any{"statusFeedback": map[string]any{"values": values}})
}

// decodeManifests decodes the status of a bundle with these manifests.
func decodeManifests(t *testing.T, manifests ...any) *feedback.Observed {
	t.Helper()
	body, err := json.Marshal(map[string]any{"resourceStatus": manifests})
	if err != nil {
		t.Fatal(err)
	}
	observed, err := feedback.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	return observed
}

func TestOIDCClients(t *testing.T) {
	conditions := func(available, degraded, reason string) string {
		return `{"componentName":"console","componentNamespace":"openshift-console","conditions":[{"type":"Available","status":"` + available +
			`","reason":"x"},{"type":"Degraded","status":"` + degraded + `","reason":"` + reason + `"}]}`
	}
	tests := map[string]struct {
		reason string
		raw    string
		want   bool
	}{
		"Available":      {"it signs users in", "[" + conditions("True", "False", "OIDCConfigAvailable") + "]", true},
		"OnlyEntry":      {"an agent may report the only entry of a list without the list", conditions("True", "False", "OIDCConfigAvailable"), true},
		"NoSecret":       {"its operator cannot read the secret", "[" + conditions("Unknown", "True", "OIDCClientSecretGet") + "]", false},
		"RollingOut":     {"it has read the secret and rolls out", "[" + conditions("Unknown", "False", "DeploymentOIDCConfig") + "]", true},
		"Unknown":        {"its operator has not reported yet", "[" + conditions("Unknown", "Unknown", "Unknown") + "]", false},
		"NoClientYet":    {"its operator has no client yet", "[" + conditions("False", "False", "OIDCClientConfig") + "]", false},
		"OtherComponent": {"the component is not reported", strings.ReplaceAll("["+conditions("True", "False", "x")+"]", `"console"`, `"other"`), false},
		"Garbage":        {"a malformed value is absent", `"x"`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			observed := decode(t, map[string]any{"name": "oidcClients", "fieldValue": map[string]any{"type": "JsonRaw", "jsonRaw": tc.raw}})
			if got := observed.OIDCClientHasSecret("console", "openshift-console"); got != tc.want {
				t.Errorf("has its secret: %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestUsesAreValidated checks the annotation with uses, which everybody with write access to the HostedCluster can set.
func TestUsesAreValidated(t *testing.T) {
	const use = `{"fingerprint":"` + "5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b" + `","user":"system:sre-break-glass:ada",` +
		`"first":"2026-03-01T08:00:00Z","last":"2026-03-01T09:00:00Z","addresses":["10.0.0.1"],"request":"list pods"}`
	tests := map[string]struct {
		reason string
		text   string
		want   int
	}{
		"One":          {"a valid use is read", "[" + use + "]", 1},
		"Twice":        {"a certificate is reported once", "[" + use + "," + use + "]", 1},
		"Another user": {"only break-glass credentials are reported", strings.ReplaceAll("["+use+"]", "system:sre-break-glass:ada", "system:admin"), 0},
		"No address":   {"an invalid address makes the use invalid", strings.ReplaceAll("["+use+"]", "10.0.0.1", "-----BEGIN"), 0},
		"Garbage":      {"a malformed value is absent", "{", 0},
		"Nothing":      {"the annotation is absent", "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			observed := decode(t, map[string]any{"name": "credentialUses", "fieldValue": map[string]any{"type": "String", "string": tc.text}})
			if len(observed.Uses) != tc.want {
				t.Errorf("read %+v, want %d: %s", observed.Uses, tc.want, tc.reason)
			}
		})
	}
}

// TestOnlyCertificatesAreRead reports other content beside certificates.
func TestOnlyCertificatesAreRead(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	const key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	value := func(text string) map[string]any {
		return map[string]any{"name": "servingCA", "fieldValue": map[string]any{"type": "String", "string": text}}
	}
	if got := decode(t, value(base64.StdEncoding.EncodeToString([]byte(key+certificate+key)))).ServingCA; got != certificate {
		t.Errorf("read %q", got)
	}
	for _, text := range []string{"%%%", base64.StdEncoding.EncodeToString([]byte("x")), strings.Repeat("A", 1<<20)} {
		if got := decode(t, value(text)).ServingCA; got != "" {
			t.Errorf("read %q", got)
		}
	}
}
