package app

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestCRDsAreInstalledOnce checks that a restarted runtime writes no definition that is installed unchanged, and
// restores a definition that another client or another release of the files has changed.
func TestCRDsAreInstalledOnce(t *testing.T) {
	t.Parallel()
	m := newManagementCluster(t)
	published := filepath.Join(thirdParty, "crds/hypershift")
	install := func(folder string) map[string]string {
		t.Helper()
		must.Do(t, installCRDs(t.Context(), m.client, folder))
		var definitions apiextensionsv1.CustomResourceDefinitionList
		must.Do(t, m.client.List(t.Context(), &definitions))
		versions := map[string]string{}
		for _, d := range definitions.Items {
			versions[d.Name] = d.ResourceVersion
		}
		return versions
	}
	const pools, requests = "nodepools.hypershift.openshift.io", "certificaterevocationrequests.certificates.hypershift.openshift.io"
	shortNames := func(name string) []string {
		t.Helper()
		definition := get[apiextensionsv1.CustomResourceDefinition](t, m.client, client.ObjectKey{Name: name})
		return definition.Spec.Names.ShortNames
	}

	first := install(published)
	if again := install(published); !maps.Equal(first, again) {
		t.Errorf("installed definitions were written again: %v, then %v", first, again)
	}

	original := shortNames(pools)
	changedByOthers := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: pools}}
	must.Do(t, m.client.Patch(t.Context(), changedByOthers, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"names":{"shortNames":["mine"]}}}`))))
	install(published)
	if now := shortNames(pools); !slices.Equal(now, original) {
		t.Errorf("a definition that another client changed has short names %q, want %q", now, original)
	}

	// Another release of the files adds a short name, and the next one removes it.
	release := t.TempDir()
	must.Do(t, os.CopyFS(release, os.DirFS(published)))
	file := filepath.Join(release, "hypershift-operator", "certificates.hypershift.openshift.io_certificaterevocationrequests.yaml")
	text := must.Get(os.ReadFile(file))(t)
	changed := strings.Replace(string(text), "    shortNames:\n", "    shortNames:\n    - another\n", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil || changed == string(text) {
		t.Fatalf("the file is not changed: %v", err)
	}
	install(release)
	if now := shortNames(requests); !slices.Contains(now, "another") {
		t.Errorf("the other release's definition has short names %q", now)
	}
	install(published)
	if now := shortNames(requests); slices.Contains(now, "another") {
		t.Errorf("the definition still has short names %q", now)
	}
}
