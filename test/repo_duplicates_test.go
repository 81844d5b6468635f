package test

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	clusterservice "github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	frontend "github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// TestParsersRefuseFieldsGivenTwice checks that each parser of input from outside that has no table of malformed input of its own refuses a field that is
// given twice, and names it. ARM bodies, admin's bodies, tokens and files of hcpctl have such tables.
func TestParsersRefuseFieldsGivenTwice(t *testing.T) {
	file := func(parse func(path string) error) func(text string) error {
		return func(text string) error {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return parse(path)
		}
	}
	spec := func(metadata, data string) error {
		evt := cloudevents.NewEvent()
		evt.SetSource("source")
		for name, value := range map[string]string{"resourceid": "id", "clustername": "mgmt-1", "resourceversion": "1", "metadata": metadata} {
			evt.SetExtension(name, value)
		}
		if err := evt.SetData(cloudevents.ApplicationJSON, []byte(data)); err != nil {
			t.Fatal(err)
		}
		_, err := event.DecodeSpec(&evt, event.Create)
		return err
	}
	grants := func(text string) error {
		w := httptest.NewRecorder()
		new(grant.Handler).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(text)))
		return errors.New(w.Body.String())
	}
	given := regexp.MustCompile(`more than once|duplicate|already (set|defined)|twice`)
	for name, tc := range map[string]struct {
		parse       func(text string) error
		text, field string
	}{
		"request for a token":     {grants, `{"intent":"a","intent":"b","parameters":{}}`, "intent"},
		"parameters of a session": {grants, `{"intent":"a","parameters":{"mode":"read","mode":"admin"}}`, "parameters.mode"},
		"bundle of a source": {func(text string) error { return spec(`{}`, text) }, `{"manifests":[{"kind":"Role","rules":[],"rules":[{}]}]}`,
			"manifests[0].rules"},
		"metadata of a bundle": {func(text string) error { return spec(text, `{"manifests":[{}]}`) }, `{"name":"a","name":"b"}`, "name"},
		"key of an issuer": {func(text string) error { _, _, err := keycache.RSAKeys([]byte(text)); return err },
			`{"keys":[{"kty":"RSA","kid":"a","kid":"b"}]}`, "kid"},
		"list of images": {func(text string) error { _, err := imagelist.Parse([]byte(text)); return err }, `{"images":{"a":{},"a":{}}}`, "images.a"},
		"pull secret": {file(func(path string) error {
			c := clusterservice.Default()
			c.PullSecretFile = path
			_, err := c.PullSecret()
			return err
		}), `{"auths":{"quay":{"auth":"hunter2","auth":"hunter3"}}}`, "auths.quay.auth"},
		"provision shards": {file(func(path string) error {
			_, err := clusterservice.LoadShards(path, &clusterservice.Default().Placement)
			return err
		}), "provisionShards: []\nprovisionShards: []\n", "provisionShards"},
		"cluster-service's configuration": {file(func(path string) error { _, err := clusterservice.Load(path); return err }), "etcd: {}\netcd: {}\n", "etcd"},
		"frontend's configuration":        {file(func(path string) error { _, err := frontend.Load(path); return err }), "vmSizes: []\nvmSizes: []\n", "vmSizes"},
		"policy of elevations":            {file(func(path string) error { _, err := elevation.LoadPolicy(path); return err }), "roles: {}\nroles: {}\n", "roles"},
		"components of admin":             {file(func(path string) error { _, err := layers.Load(path); return err }), "components: []\ncomponents: []\n", "components"},
		"release catalogue":               {func(text string) error { _, err := release.Parse([]byte(text)); return err }, "repository: a\nrepository: b\n", "repository"},
		"layer of the configuration": {func(text string) error {
			_, problems := document.Parse(document.Origin{}, []byte(text))
			return problems.Err()
		}, "region: a\nregion: b\n", "region"},
	} {
		err := tc.parse(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.field) || !given.MatchString(err.Error()) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want an error that names %s", name, err, tc.field)
		}
	}
}
