package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOneExternalAuthOneCluster: of concurrent PUTs of two external authentications of one cluster, one succeeds. The
// others are conflicts with it or name the external authentication that exists.
func TestOneExternalAuthOneCluster(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	body := y.body("external-auth.json", "{}")
	counts := concurrently(8, func(i int) int {
		status, _, answer := y.do(http.MethodPut, fmt.Sprintf("%s/externalAuths/auth-%d", y.cluster("cluster"), i%2), body)
		if e := decode[struct{ Error fieldError }](t, answer).Error; status == http.StatusBadRequest && (e.Target != "name" || !strings.HasPrefix(e.Message, "Forbidden: ")) {
			t.Error(answer)
		}
		return status
	})
	if counts[http.StatusCreated] != 1 || counts[http.StatusConflict] != 3 || counts[http.StatusBadRequest] != 4 {
		t.Errorf("responses: %v", counts)
	}
	found := y.documents()
	found.check(t)
	if len(found.externals) != 1 {
		t.Errorf("the cluster has %d external authentications", len(found.externals))
	}
}

// TestExternalAuthCreationRacesWithClusterDeletion: an external authentication that is created while its cluster's deletion starts is
// part of the deletion or rejected. The same holds for its reservation.
func TestExternalAuthCreationRacesWithClusterDeletion(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	for round := range 5 {
		name := fmt.Sprintf("cluster-%d", round)
		y.createCluster(name)
		body := y.body("external-auth.json", "{}")
		counts := concurrently(2, func(i int) int {
			if i == 0 {
				status, _, _ := y.do(http.MethodDelete, y.cluster(name), "")
				return status
			}
			status, _, _ := y.do(http.MethodPut, y.cluster(name)+"/externalAuths/auth", body)
			return status
		})
		if counts[http.StatusAccepted] != 1 || counts[http.StatusCreated]+counts[http.StatusConflict] != 1 {
			t.Fatalf("responses: %v", counts)
		}
		for range 2 { // the first round finishes the creations
			must.Do(t, y.finishOperations(context.Background()))
		}
		if left := y.documents(); len(left.externals)+len(left.clusters)+len(left.reservations) != 0 {
			t.Errorf("%d clusters, %d external authentications and %d reservations remain", len(left.clusters), len(left.externals), len(left.reservations))
		}
	}
}

// FuzzExternalAuthBody: a PUT of any bytes at any api-version creates an external authentication, or is rejected and
// stores nothing.
func FuzzExternalAuthBody(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	f.Add(uint8(0), []byte(y.body("external-auth.json", "{}")))
	f.Add(uint8(3), []byte(y.body("external-auth.json", `{"properties":{"issuer":{"ca":"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},"claim":{"mappings":{"groups":{"claim":"g"}},"validationRules":[{"requiredClaim":{"claim":"a","requiredValue":"b"}}]}}}`)))
	f.Add(uint8(3), []byte(`{"properties":{"issuer":{"url":"https://[::1]:x/%zz"},"clients":[null,{"component":[]}]}}`))
	f.Add(uint8(1), []byte(`{"properties":{"claim":{"validationRules":[{"type":null,"requiredClaim":{}}]}}}`))
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		y.in(t).putAny(t, y.cluster("cluster")+"/externalAuths/auth", body, version)
	})
}

// FuzzExternalAuthPatch: a PATCH of any bytes at any api-version changes the external authentication, or is rejected
// and changes nothing.
func FuzzExternalAuthPatch(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	target := y.cluster("cluster") + "/externalAuths/auth"
	y.mustDo(http.StatusCreated, http.MethodPut, target, y.body("external-auth.json", "{}"))
	must.Do(f, y.finishOperations(context.Background()))
	f.Add(uint8(0), []byte(`{"properties":{"clients":null}}`))
	f.Add(uint8(3), []byte(`{"properties":{"claim":{"mappings":{"username":{"prefixPolicy":"Prefix","prefix":"a:"}}}}}`))
	f.Add(uint8(2), []byte(`{"properties":{"issuer":null},"name":"auth","id":1}`))
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		y.in(t).patchAny(t, target, body, version)
	})
}

// FuzzURLHeaders: with any headers, URLs in responses are absolute and have the host of the headers or of this API.
// Names of callers are stored as valid text.
func FuzzURLHeaders(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	csr := signingRequest(f)
	f.Add("https://management.example/subscriptions?x=y", "https", "arm.example", "alice@example.com", `"a"`)
	f.Add("https://user:password@host:99999/", "gopher", "a b, c", "\xff\xfe", "*")
	f.Add("//host", "https,http", "[::1]:443", strings.Repeat("é", 200), ",,W/\"x\"")
	f.Fuzz(func(t *testing.T, referer, proto, host, principal, noneMatch string) {
		y := y.in(t)
		headers := []string{"Referer", referer, "X-Forwarded-Proto", proto, "X-Forwarded-Host", host, "X-Ms-Client-Principal-Name", principal, "If-None-Match", noneMatch}
		for _, get := range []string{strings.TrimSuffix(y.cluster(""), "/") + "?$top=1", y.cluster("cluster")} {
			status, header, answer := y.do(http.MethodGet, get, "", headers...)
			answerable(t, status, header, answer)
		}
		whence := headers[:len(headers)-2] // a condition of the fuzzer would cause a correct rejection
		status, header, answer := y.do(http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", csr, whence...)
		answerable(t, status, header, answer)
		if status != http.StatusAccepted {
			t.Fatalf("a valid request got status %d %s", status, answer)
		}
		for _, name := range []string{"Location", "Azure-AsyncOperation"} {
			u, err := url.Parse(header.Get(name))
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || !strings.HasPrefix(u.Path, "/subscriptions/") {
				t.Errorf("%s is %q", name, header.Get(name))
			}
		}
		for _, credential := range all(y, y.db.Credentials()) {
			if name := credential.Value.Requester; name == "" || len(name) > 256 || !utf8.ValidString(name) {
				t.Errorf("the requester is %q", name)
			}
		}
		y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/revokeCredentials", "")
		y.finishAndRemoveOperations()
	})
}
