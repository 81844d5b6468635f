package chart_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// TestSecretReadsAreThoseOfCharts compares the secrets that each managed identity may read with those that pods of the charts mount with it. Without a
// right, no pod of the program starts. A right without a mount gives secrets of others to whoever steals the identity.
func TestSecretReadsAreThoseOfCharts(t *testing.T) {
	configuration := charttest.Configuration(t)
	found := 0
	for _, name := range configuration.Targets(nil) {
		rendered := must.Get(configuration.Render(name))(t)
		// The infrastructure knows neither digests nor client IDs.
		reads := must.Get(values.SecretReads(values.Target{Name: name.String(), Schema: configuration.Schema, Configuration: rendered}))(t)
		found += len(reads)
		target := charttest.Complete(name, configuration.Schema, rendered)
		permitted, mounted := map[values.SecretRead]bool{}, map[values.SecretRead]bool{}
		for _, read := range reads {
			read.Identity = target.ClientIDs[read.Identity]
			permitted[read] = true
		}
		for _, objects := range charttest.RenderAll(t, target) {
			maps.Copy(mounted, mountedSecrets(t, objects))
		}
		if diff := cmp.Diff(mounted, permitted); diff != "" {
			t.Errorf("%s: the secrets that identities may read differ from those that charts mount (-mounted, +permitted):\n%s", name, diff)
		}
	}
	if found == 0 {
		t.Error("no identity reads a secret")
	}
}

// TestSigningKeysHaveOneReader lists the identities that may read each key that signs. Whoever reads the intent key of admin acts as any engineer.
func TestSigningKeysHaveOneReader(t *testing.T) {
	reads := must.Get(values.SecretReads(target(t, reference)))(t)
	got := map[string][]string{}
	for _, read := range reads {
		if strings.HasSuffix(read.Secret, "-signing-key") || read.Secret == "admin-intent-key" {
			got[read.Secret] = append(got[read.Secret], read.Identity)
		}
	}
	want := map[string][]string{
		"admin-intent-key":                  {"admin-prod-uks"},
		"admin-audit-signing-key":           {"admin-prod-uks"},
		"backend-audit-signing-key":         {"backend-prod-uks"},
		"cluster-service-audit-signing-key": {"cluster-service-prod-uks"},
		"frontend-audit-signing-key":        {"frontend-prod-uks"},
		"gateway-access-audit-signing-key":  {"gateway-access-prod-uks"},
		"maestro-audit-signing-key":         {"maestro-server-prod-uks"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestAdminMountsPublicKeysOfAllWriters compares the folder of admin's --audit-keys-dir with the programs that sign audit records: it has the public keys of each of
// them, in the file with its name, and nothing else.
func TestAdminMountsPublicKeysOfAllWriters(t *testing.T) {
	want, got := map[string]string{}, map[string]string{}
	flagged := false
	for program, objects := range charttest.RenderAll(t, target(t, reference)) {
		for _, object := range objects {
			flagged = flagged || program == string(mesh.Admin) && strings.Contains(fmt.Sprint(object.Object), "--audit-keys-dir=/secrets/audit-keys")
			if object.GetKind() != "SecretProviderClass" {
				continue
			}
			_, files := filesOf(t, object)
			for _, file := range files {
				if file.ObjectAlias == "audit-signing-key" {
					want[program+".pem"] = strings.TrimSuffix(file.ObjectName, "signing-key") + "public-keys"
				}
				if object.GetName() == "admin-audit-keys" {
					got[file.ObjectAlias] = file.ObjectName
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || !flagged {
		t.Errorf("admin has the flag: %t; -writers, +mounted:\n%s", flagged, diff)
	}
}

// mountedSecrets returns the secrets that pods mount with the secrets store driver, with the client ID in place of the name of the identity.
func mountedSecrets(t *testing.T, objects chart.Objects) map[values.SecretRead]bool {
	t.Helper()
	classes, reads := map[string]bool{}, map[values.SecretRead]bool{}
	for _, object := range objects {
		found, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec", "volumes")
		if err != nil {
			t.Fatal(err)
		}
		volumes, _ := found.([]any) // nil for an object without pods or volumes
		for _, volume := range volumes {
			class, found, err := unstructured.NestedString(volume.(map[string]any), "csi", "volumeAttributes", "secretProviderClass")
			if err != nil {
				t.Fatal(err)
			}
			if found {
				classes[object.GetNamespace()+"/"+class] = false
			}
		}
	}
	for _, object := range objects {
		if object.GetKind() != "SecretProviderClass" {
			continue
		}
		name := object.GetNamespace() + "/" + object.GetName()
		if _, used := classes[name]; !used {
			t.Errorf("no pod mounts the SecretProviderClass %s", name)
		}
		classes[name] = true
		parameters, files := filesOf(t, object)
		for _, file := range files {
			if file.ObjectType != "secret" {
				t.Fatalf("%s has the object %+v", name, file)
			}
			reads[values.SecretRead{Identity: parameters["clientID"], Vault: parameters["keyvaultName"], Secret: file.ObjectName}] = true
		}
	}
	for name, exists := range classes {
		if !exists {
			t.Errorf("a pod mounts the SecretProviderClass %s, which the chart does not have", name)
		}
	}
	return reads
}

// mountedFile is a secret that a SecretProviderClass mounts as the file ObjectAlias.
type mountedFile struct{ ObjectType, ObjectName, ObjectAlias string }

// filesOf returns the parameters of a SecretProviderClass and the files that it mounts.
func filesOf(t *testing.T, object *unstructured.Unstructured) (parameters map[string]string, files []mountedFile) {
	t.Helper()
	parameters, _, err := unstructured.NestedStringMap(object.Object, "spec", "parameters")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Array []string }
	must.Do(t, yaml.Unmarshal([]byte(parameters["objects"]), &list))
	for _, item := range list.Array {
		var file mountedFile
		if err := yaml.Unmarshal([]byte(item), &file); err != nil {
			t.Fatalf("%s has the object %q: %v", object.GetName(), item, err)
		}
		files = append(files, file)
	}
	return parameters, files
}
